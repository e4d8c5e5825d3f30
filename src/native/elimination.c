/* Elimination of states: what a policy costs and how often it visits, without a subtraction.

   For a policy pi let Q = gamma P_pi, whose rows add up to gamma.  (I - Q) V = c and (I - Q)' x = b are solved by Gauss's
   elimination in an order that keeps the fill small.  Off the diagonal all entries of I - Q and of its factors are
   negative, and are kept with their sign turned; a pivot is not computed by subtraction but as what its row leads
   elsewhere, ends included (Grassmann, Taksar and Heyman 1985).  So every number is a sum of positive ones, and visits come
   out exact to rounding in every entry, however small.

       l_ki = q_ki / u_ii,    q_kj += l_ki u_ij,    e_k += l_ki e_i,    u_kk = e_k + sum over j > k of u_kj,

   where e is the chance to end, 1 - gamma at first. */

#include "pattern.h"
#include <math.h>

typedef Py_ssize_t Size;

typedef struct {
    PyObject_HEAD
    Kept kept;
    Matrix P; /* the transitions, a row each pair */
    double gamma;
    int32_t *order, *position;
    /* For each column of L, which is the same as each row of U: its entries.  For each row of L: the same the other way. */
    int32_t *starts, *rows, *starts_of_row, *columns, *slots;
} Elimination;

typedef struct {
    PyObject_HEAD
    Elimination *of;
    double *L, *U, *D, *x;
} Factors;

/* ------------------------------------------------------------------------------------------------ the pattern of L */

static int analyze(Elimination *e)
{
    Size S = e->P.states, entries = e->P.starts[e->P.pairs];
    int32_t *begins = calloc(S + 2, sizeof(int32_t)), *lower = malloc((entries + 1) * sizeof(int32_t));
    int32_t *parent = malloc((S + 1) * sizeof(int32_t)), *flag = malloc((S + 1) * sizeof(int32_t));
    int32_t *filled = calloc(S + 1, sizeof(int32_t)), *of_row = calloc(S + 1, sizeof(int32_t));
    e->position = (int32_t *)keep_room(&e->kept, S / 2 + 1);
    e->starts = (int32_t *)keep_room(&e->kept, S / 2 + 2);
    e->starts_of_row = (int32_t *)keep_room(&e->kept, S / 2 + 2);
    if (!begins || !lower || !parent || !flag || !filled || !of_row) PyErr_NoMemory();
    if (PyErr_Occurred()) goto end;
    for (Size k = 0; k < S; k++) e->position[e->order[k]] = (int32_t)k;
    /* Edges between states, by the later of the two. */
    for (int pass = 0; pass < 2; pass++) {
        for (Size s = 0; s < S; s++)
            for (int32_t k = e->P.starts[e->P.first[s]]; k < e->P.starts[e->P.first[s + 1]]; k++) {
                int32_t a = e->position[s], b = e->position[e->P.columns[k]], late = a > b ? a : b;
                if (a == b) continue;
                if (pass) lower[begins[late + 1]++] = a > b ? b : a;
                else begins[late + 2]++;
            }
        if (!pass)
            for (Size k = 0; k < S; k++) begins[k + 2] += begins[k + 1];
    }
    /* The elimination tree, and the entries of each row and column of L. */
    for (int pass = 0; pass < 2; pass++) {
        for (Size k = 0; k < S; k++) {
            if (!pass) parent[k] = -1;
            flag[k] = (int32_t)k;
            for (int32_t p = begins[k]; p < begins[k + 1]; p++)
                for (int32_t i = lower[p]; flag[i] != k; i = parent[i]) {
                    if (!pass) {
                        if (parent[i] < 0) parent[i] = (int32_t)k;
                        filled[i]++;
                        of_row[k]++;
                    } else
                        e->columns[e->starts_of_row[k] + of_row[k]++] = i;
                    flag[i] = (int32_t)k;
                }
            if (pass) {
                int32_t *mine = e->columns + e->starts_of_row[k];
                qsort(mine, of_row[k], sizeof(int32_t), by_number);
                for (int32_t r = 0; r < of_row[k]; r++) {
                    int32_t slot = e->starts[mine[r]] + filled[mine[r]]++;
                    e->rows[slot] = (int32_t)k;
                    e->slots[e->starts_of_row[k] + r] = slot;
                }
            }
        }
        if (!pass) {
            int64_t total = 0, across = 0;
            for (Size k = 0; k < S; k++) {
                e->starts[k] = (int32_t)total, e->starts_of_row[k] = (int32_t)across;
                total += filled[k], across += of_row[k];
                if (total > INT32_MAX) {
                    PyErr_SetString(PyExc_MemoryError, "the factor has too many entries");
                    goto end;
                }
            }
            e->starts[S] = e->starts_of_row[S] = (int32_t)total;
            e->rows = (int32_t *)keep_room(&e->kept, total / 2 + 1);
            e->columns = (int32_t *)keep_room(&e->kept, total / 2 + 1);
            e->slots = (int32_t *)keep_room(&e->kept, total / 2 + 1);
            if (PyErr_Occurred()) goto end;
            memset(filled, 0, S * sizeof(int32_t));
            memset(of_row, 0, S * sizeof(int32_t));
        }
    }
end:
    free(begins), free(lower), free(parent), free(flag), free(filled), free(of_row);
    return !PyErr_Occurred();
}

static int elimination_init(Elimination *e, PyObject *args, PyObject *keywords)
{
    PyObject *model;
    Size size;
    if (!PyArg_ParseTuple(args, "O", &model) || !read_matrix(&e->kept, model, &e->P)) return -1;
    e->order = keep_array(&e->kept, model, "order", 'i', &size);
    PyObject *gamma = PyObject_GetAttrString(model, "gamma");
    e->gamma = gamma ? PyFloat_AsDouble(gamma) : 0.0;
    Py_XDECREF(gamma);
    return PyErr_Occurred() || !analyze(e) ? -1 : 0;
}

static void elimination_dealloc(Elimination *e)
{
    keep_nothing(&e->kept);
    Py_TYPE(e)->tp_free((PyObject *)e);
}

/* -------------------------------------------------------------------------------------------------------- factors */

static void eliminate(const Elimination *e, const double *pi, Factors *f, double *w, double *ends)
{
    const Matrix *P = &e->P;
    for (Size k = 0; k < P->states; k++) {
        Size s = e->order[k];
        double total = 0.0, end, out = 0.0;
        /* Rows of P and of pi are proportions: what their sums are off by one does not count. */
        for (int64_t i = P->first[s]; i < P->first[s + 1]; i++)
            if (pi[i] > 0)
                for (int32_t p = P->starts[i]; p < P->starts[i + 1]; p++) total += pi[i] * P->values[p];
        double scale = total > 0 ? e->gamma / total : 0.0;
        for (int64_t i = P->first[s]; i < P->first[s + 1]; i++)
            if (pi[i] > 0)
                for (int32_t p = P->starts[i]; p < P->starts[i + 1]; p++)
                    w[e->position[P->columns[p]]] += scale * pi[i] * P->values[p];
        end = 1 - e->gamma;
        for (int32_t r = e->starts_of_row[k]; r < e->starts_of_row[k + 1]; r++) {
            int32_t i = e->columns[r];
            double l = w[i] == 0.0 ? 0.0 : w[i] / f->D[i];
            w[i] = 0.0;
            f->L[e->slots[r]] = l;
            if (l == 0.0) continue;
            for (int32_t p = e->starts[i]; p < e->starts[i + 1]; p++) w[e->rows[p]] += l * f->U[p];
            end += l * ends[i];
        }
        for (int32_t p = e->starts[k]; p < e->starts[k + 1]; p++) {
            f->U[p] = w[e->rows[p]];
            w[e->rows[p]] = 0.0;
            out += f->U[p];
        }
        w[k] = 0.0;
        ends[k] = end;
        f->D[k] = end + out;
    }
}

static PyTypeObject FactorsType;

static PyObject *elimination_factors(Elimination *e, PyObject *object)
{
    Held held = {0};
    Numbers pi;
    if (!take(&held, &object, 1, "d", &pi)) return NULL;
    Size S = e->P.states, entries = e->starts[S];
    Factors *f = pi.size == e->P.pairs ? PyObject_New(Factors, &FactorsType) : NULL;
    if (!f) {
        give_back(&held);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "a policy has %zd entries", e->P.pairs);
    }
    Py_INCREF(e);
    f->of = e;
    f->L = malloc((2 * entries + 4 * S + 1) * sizeof(double));
    if (f->L) {
        f->U = f->L + entries, f->D = f->U + entries, f->x = f->D + S;
        double *w = f->x + S, *ends = w + S;
        Py_BEGIN_ALLOW_THREADS;
        memset(w, 0, S * sizeof(double));
        eliminate(e, pi.at, f, w, ends);
        Py_END_ALLOW_THREADS;
    } else
        PyErr_NoMemory();
    give_back(&held);
    if (PyErr_Occurred()) Py_CLEAR(f);
    return (PyObject *)f;
}

static void factors_dealloc(Factors *f)
{
    free(f->L);
    Py_XDECREF(f->of);
    PyObject_Free(f);
}

/* Solve (I - Q) V = c, or with back (I - Q)' x = b, in place. */
static PyObject *solve(Factors *f, PyObject *object, int back)
{
    Held held = {0};
    Numbers b;
    const Elimination *e = f->of;
    Size S = e->P.states;
    if (!take(&held, &object, 1, "D", &b)) return NULL;
    if (b.size != S) {
        give_back(&held);
        return PyErr_Format(PyExc_ValueError, "a right side has %zd entries, not %zd", S, b.size);
    }
    const double *first = back ? f->U : f->L, *second = back ? f->L : f->U;
    double *x = f->x;
    Py_BEGIN_ALLOW_THREADS;
    for (Size k = 0; k < S; k++) x[k] = b.at[e->order[k]];
    for (Size k = 0; k < S; k++) {
        if (back) x[k] /= f->D[k];
        double here = x[k];
        if (here != 0.0)
            for (int32_t p = e->starts[k]; p < e->starts[k + 1]; p++) x[e->rows[p]] += first[p] * here;
    }
    for (Size k = S - 1; k >= 0; k--) {
        double total = x[k];
        for (int32_t p = e->starts[k]; p < e->starts[k + 1]; p++) total += second[p] * x[e->rows[p]];
        x[k] = back ? total : total / f->D[k];
    }
    for (Size k = 0; k < S; k++) b.at[e->order[k]] = x[k];
    Py_END_ALLOW_THREADS;
    give_back(&held);
    Py_RETURN_NONE;
}

static PyObject *factors_values(Factors *f, PyObject *object) { return solve(f, object, 0); }
static PyObject *factors_visits(Factors *f, PyObject *object) { return solve(f, object, 1); }

/* --------------------------------------------------------------------------------------------------------- module */

static PyMethodDef elimination_methods[] = {
    {"factors", (PyCFunction)elimination_factors, METH_O, "factors(pi) -> Factors of a policy."}, {NULL}};
static PyMethodDef factors_methods[] = {
    {"values", (PyCFunction)factors_values, METH_O, "values(c): solve (I - gamma P_pi) V = c in place."},
    {"visits", (PyCFunction)factors_visits, METH_O, "visits(b): solve (I - gamma P_pi)' x = b in place."},
    {NULL},
};

static PyTypeObject EliminationType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "cvxmdp._elimination.Elimination",
    .tp_basicsize = sizeof(Elimination),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Elimination(model): the pattern of the factors of a model's policies.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)elimination_init,
    .tp_dealloc = (destructor)elimination_dealloc,
    .tp_methods = elimination_methods,
};
static PyTypeObject FactorsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "cvxmdp._elimination.Factors",
    .tp_basicsize = sizeof(Factors),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Factors of one policy.",
    .tp_dealloc = (destructor)factors_dealloc,
    .tp_methods = factors_methods,
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_elimination", "Elimination of states.", -1, NULL};

PyMODINIT_FUNC PyInit__elimination(void)
{
    PyObject *made = PyModule_Create(&module);
    if (!made || PyType_Ready(&EliminationType) < 0 || PyType_Ready(&FactorsType) < 0) return NULL;
    Py_INCREF(&EliminationType);
    if (PyModule_AddObject(made, "Elimination", (PyObject *)&EliminationType) < 0) return NULL;
    return made;
}
