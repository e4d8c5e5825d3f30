"""Files in the binary format of PETSc: made by hand, some of them wrong, or by PETSc.

PETSc runs in a process of its own, because MPI changes the process that it is started in.
"""

import pickle
import struct
import subprocess
import sys

import numpy as np
import scipy.sparse as sp


def in_bytes(matrix, whole="i", columns=None, entries=None):
    """Return the file of a matrix as the manual page of MatLoad describes it."""
    csr = sp.csr_array(matrix)
    lengths = np.diff(csr.indptr).tolist()
    numbers = [1211216, *matrix.shape, csr.nnz if entries is None else entries, *lengths]
    numbers += csr.indices.tolist() if columns is None else columns
    return struct.pack(f">{len(numbers)}{whole}{csr.nnz}d", *numbers, *csr.data)


P = np.array([[0.5, 0.5, 0], [0, 1, 0], [0, 0.25, 0.75], [1, 0, 0], [0, 0, 1], [0.2, 0.3, 0.5]])
G = np.array([[1.0, 0.0], [0.0, -3.0], [1e-8, 2.0]])


def files(folder, P=P, name="P.bin", **costs):
    """Write the files of a model, given as matrices or as bytes."""
    for file, content in {
        name: P,
        **{f"{cost}{name[-4:]}": table for cost, table in (costs or {"g": G}).items()},
    }.items():
        (folder / file).write_bytes(content if isinstance(content, bytes) else in_bytes(content))
    return folder / name


def changed(matrix, at, value):
    matrix = matrix.copy()
    matrix[at] = value
    return matrix


WRONG = [
    ({"P": b""}, r"P\.bin': it begins with nothing"),
    ({"P": b"hello, world"}, r"P\.bin': it begins with 68 65 6c 6c; a matrix .* begins with 00 12 7b 50"),
    ({"P": struct.pack(">2i3d", 1211214, 3, 1, 2, 3)}, r"P\.bin': it holds a vector of PETSc"),
    ({"P": in_bytes(P)[:12]}, r"P\.bin': it ends early"),
    (
        {"P": in_bytes(P)[:-1]},
        r"P\.bin': it has 159 bytes; a matrix of 6 x 3, 10 entries of which are stored in double precision, has 160",
    ),
    ({"P": in_bytes(P) + b"\0"}, "it has 161 bytes"),
    ({"P": in_bytes(P, entries=9)}, r"it has 160 bytes; .* 9 entries .* has 148"),
    ({"P": in_bytes(P, entries=-2)}, "6 rows, 3 columns and -2 entries"),
    ({"P": in_bytes(P[:5])}, r"P\.bin' holds a matrix of 5 x 3; expected transitions"),
    ({"P": in_bytes(P[:2])}, r"P\.bin' holds a matrix of 2 x 3; expected transitions"),
    ({"P": struct.pack(">4i", 1211216, 0, 0, 0)}, "matrix of 0 x 0; expected transitions"),
    ({"P": in_bytes(P, columns=[0, 1, 1, 1, 2, 0, 2, 0, 1, 3])}, r"P\.bin': an entry is in column 3; there are col"),
    ({"P": in_bytes(P, columns=[0, 1, 1, 1, 2, 0, 2, 0, 1, -1])}, "is in column -1; there are columns 0 to 2"),
    (
        {"P": in_bytes(P).replace(struct.pack(">3i", 2, 1, 2), struct.pack(">3i", 2, 2, 2))},
        "have 11 entries in all; it states 10",
    ),
    ({"P": in_bytes(P).replace(struct.pack(">3i", 2, 1, 2), struct.pack(">3i", 2, -1, 4))}, "row 1 should have -1"),
    ({"P": changed(P, (3, 0), 0.5)}, r"P\.bin': the probabilities from state 1, action 1 sum to 0\.5"),
    ({"P": changed(P, (3, 0), 0.0)}, r"P\.bin': the probabilities from state 1, action 1 sum to 0,"),
    ({"P": changed(P, (3, 0), np.nan)}, r"P\.bin': .* from state 1, action 1 is nan"),
    ({"g": changed(G, (1, 0), np.nan)}, r"P\.bin': cost 'g' is nan in state 1, action 0"),
    ({"g": changed(G, 1, np.inf)}, r"P\.bin': state 1 has no action"),
    (
        {"g": G.T},
        r"g\.bin' holds a matrix of 2 x 3; expected costs of the model in '.*P\.bin', of 3 states x 2 actions",
    ),
    ({"g": in_bytes(G)[:-8]}, r"g\.bin': it has \d+ bytes"),
    ({"g": b"PK\3\4"}, r"g\.bin': it begins with 50 4b 03 04"),
]


class PetscFiles:
    """What is asked of PETSc, with a process that does it."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def write(self, path, matrix, dense=False):
        """Write a matrix; a dense one stored densely."""
        self._ask(written, str(path), matrix, dense)

    def read(self, path):
        """Return a matrix as a dense array."""
        return self._ask(found, str(path))

    def _ask(self, function, *arguments):
        pickle.dump((function.__name__, arguments), self.process.stdin)
        self.process.stdin.flush()
        return pickle.load(self.process.stdout)

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def written(path, matrix, dense):
    from petsc4py import PETSc

    if dense:
        stored = PETSc.Mat().createDense(matrix.shape, array=np.asfortranarray(matrix), comm=PETSc.COMM_SELF)
    else:
        csr = sp.csr_array(matrix)
        parts = csr.indptr.astype(PETSc.IntType), csr.indices.astype(PETSc.IntType), csr.data
        stored = PETSc.Mat().createAIJ(matrix.shape, csr=parts, comm=PETSc.COMM_SELF)
    stored.assemble()
    viewer = PETSc.Viewer().createBinary(path, "w", comm=PETSc.COMM_SELF)
    if dense:
        viewer.pushFormat(PETSc.Viewer.Format.NATIVE)
    stored.view(viewer)
    viewer.destroy()


def found(path):
    from petsc4py import PETSc

    viewer = PETSc.Viewer().createBinary(path, "r", comm=PETSc.COMM_SELF)
    matrix = PETSc.Mat().create(comm=PETSc.COMM_SELF).load(viewer)
    viewer.destroy()
    indptr, indices, data = matrix.getValuesCSR()
    return sp.csr_array((data, indices, indptr), shape=matrix.getSize()).toarray()


if __name__ == "__main__":
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        pickle.dump({"written": written, "found": found}[name](*arguments), sys.stdout.buffer)
        sys.stdout.buffer.flush()
