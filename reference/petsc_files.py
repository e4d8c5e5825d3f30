"""PETSc in a process of its own, which writes and reads matrices: MPI changes the process that it is started in."""

import pickle
import subprocess
import sys

import numpy as np
import scipy.sparse as sp


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
