/* The normal equations N = A K^-1 A': formed in a fixed pattern, factored, solved.

   N = sum over pairs of W m m' for the rows m of A'.  Where limits or curves are on a state's visits, what its rows have
   in common counts only soft times, below one:

       sum of W (m - mean)(m - mean)' + soft (sum of W) mean mean'.

   The first part is written with differences e from the heaviest row, sum of W e e' - (sum of W) tilt tilt' with tilt
   their mean, so that little cancels and rows stay short.  The matrix is sparse, its upper triangle by columns, or dense. */

#ifndef CVXMDP_FACTOR_H
#define CVXMDP_FACTOR_H

#include "pattern.h"
#include <math.h>

static const double LIFTS[] = {0.0, 1e-14, 1e-12, 1e-10, 1e-8};
/* Added to the diagonal, relatively, where rounding leaves the matrix singular. */

typedef struct {
    Py_ssize_t states;
    int32_t *local, *reached_starts, *reached;
    /* Sparse: N and its factor L D L' in the order that was given. */
    int32_t *place, *upper_starts, *order;
    double *data;
    int32_t *to, *from, *rows, *starts_B, *parent, *flag, *path, *filled, *starts_L, *rows_L;
    double *L, *D, *room, *permuted;
    /* Dense. */
    double *matrix, *factor;
    double *mean, *tilt, *row;
    int32_t *seen;
} Normal;

/* ---------------------------------------------------------------------------------------------- LAPACK, from SciPy */

static void (*dpotrf)(char *, int *, double *, int *, int *);
static void (*dpotrs)(char *, int *, int *, double *, int *, double *, int *, int *);

static void *find_routine(PyObject *routines, const char *name)
{
    PyObject *capsule = PyDict_GetItemString(routines, name);
    if (!capsule) {
        PyErr_Format(PyExc_ImportError, "SciPy has no %s", name);
        return NULL;
    }
    return PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
}

static int find_lapack(void)
{
    PyObject *module = PyImport_ImportModule("scipy.linalg.cython_lapack");
    PyObject *routines = module ? PyObject_GetAttrString(module, "__pyx_capi__") : NULL;
    if (routines) {
        *(void **)&dpotrf = find_routine(routines, "dpotrf");
        *(void **)&dpotrs = find_routine(routines, "dpotrs");
    }
    Py_XDECREF(routines);
    Py_XDECREF(module);
    return !PyErr_Occurred();
}

/* -------------------------------------------------------------------------------------------------- forming the sum */

/* The mean of a state's rows, weighted by W, and how far it is from the heaviest row, which is returned. */
static int64_t find_mean(const Normal *N, const Matrix *A, Py_ssize_t s, const double *W, double *total)
{
    int64_t from = A->first[s], to = A->first[s + 1], heaviest = from;
    int32_t size = N->reached_starts[s + 1] - N->reached_starts[s];
    *total = 0.0;
    for (int64_t i = from; i < to; i++) {
        *total += W[i];
        if (W[i] > W[heaviest]) heaviest = i;
    }
    for (int32_t a = 0; a < size; a++) N->mean[a] = N->tilt[a] = 0.0;
    for (int32_t k = A->starts[heaviest]; k < A->starts[heaviest + 1]; k++) N->mean[N->local[k]] = A->values[k];
    for (int64_t i = from; i < to; i++)
        if (i != heaviest) {
            double share = W[i] / *total;
            for (int32_t k = A->starts[i]; k < A->starts[i + 1]; k++) N->tilt[N->local[k]] += share * A->values[k];
            for (int32_t k = A->starts[heaviest]; k < A->starts[heaviest + 1]; k++)
                N->tilt[N->local[k]] -= share * A->values[k];
        }
    for (int32_t a = 0; a < size; a++) N->mean[a] += N->tilt[a];
    return heaviest;
}

/* A row less the heaviest one, and the numbers of its entries; returns how many there are. */
static int32_t find_difference(const Normal *N, const Matrix *A, int64_t i, int64_t heaviest)
{
    int32_t count = 0;
    for (int32_t k = A->starts[heaviest]; k < A->starts[heaviest + 1]; k++) {
        N->row[N->local[k]] = -A->values[k];
        N->seen[count++] = N->local[k];
    }
    int32_t many = count;
    for (int32_t k = A->starts[i]; k < A->starts[i + 1]; k++) {
        int known = 0;
        for (int32_t j = 0; j < many && !known; j++) known = N->seen[j] == N->local[k];
        if (known) N->row[N->local[k]] += A->values[k];
        else {
            N->row[N->local[k]] = A->values[k];
            N->seen[count++] = N->local[k];
        }
    }
    return count;
}

/* Where the entry of two states lies that a state reaches, the first with the larger number. */
static inline double *entry(const Normal *N, const int32_t *mine, int64_t base, int32_t high, int32_t low)
{
    return N->place ? N->data + N->place[base + (int64_t)high * (high + 1) / 2 + low]
                    : N->matrix + (int64_t)mine[high] * N->states + mine[low];
}

static void form(const Normal *N, const Matrix *A, const double *W, const double *soft)
{
    int64_t base = 0;
    if (N->place) memset(N->data, 0, N->upper_starts[N->states] * sizeof(double));
    else memset(N->matrix, 0, N->states * N->states * sizeof(double));
    for (Py_ssize_t s = 0; s < N->states; s++) {
        int32_t size = N->reached_starts[s + 1] - N->reached_starts[s];
        const int32_t *mine = N->reached + N->reached_starts[s];
        if (soft[s] == 1.0) {
            for (int64_t i = A->first[s]; i < A->first[s + 1]; i++) {
                const int32_t from = A->starts[i], to = A->starts[i + 1];
                for (int32_t j = from; j < to; j++) {
                    double scaled = W[i] * A->values[j];
                    int32_t high = N->local[j];
                    if (N->place) {
                        const int32_t *line = N->place + base + (int64_t)high * (high + 1) / 2;
                        for (int32_t k = from; k <= j; k++) N->data[line[N->local[k]]] += scaled * A->values[k];
                    } else {
                        double *line = N->matrix + (int64_t)mine[high] * N->states;
                        for (int32_t k = from; k <= j; k++) line[A->columns[k]] += scaled * A->values[k];
                    }
                }
            }
        } else {
            double total;
            int64_t heaviest = find_mean(N, A, s, W, &total);
            for (int64_t i = A->first[s]; i < A->first[s + 1]; i++) {
                if (i == heaviest) continue;
                int32_t count = find_difference(N, A, i, heaviest);
                for (int32_t j = 0; j < count; j++) {
                    int32_t a = N->seen[j];
                    double scaled = W[i] * N->row[a];
                    for (int32_t k = 0; k <= j; k++) {
                        int32_t b = N->seen[k];
                        *entry(N, mine, base, a > b ? a : b, a > b ? b : a) += scaled * N->row[b];
                    }
                }
            }
            for (int32_t a = 0; a < size; a++) {
                double up = soft[s] * total * N->mean[a], down = total * N->tilt[a];
                for (int32_t b = 0; b <= a; b++) *entry(N, mine, base, a, b) += up * N->mean[b] - down * N->tilt[b];
            }
        }
        base += (int64_t)size * (size + 1) / 2;
    }
}

/* ------------------------------------------------------------------------------------------------- sparse factors */

/* Prepare L D L' = N in a given order: where entries come from, the elimination tree, and the pattern of L. */
static int analyze(Kept *kept, Normal *N, const int32_t *upper_rows)
{
    Py_ssize_t S = N->states, entries = N->upper_starts[S];
    int32_t *position = (int32_t *)keep_room(kept, S / 2 + 1);
    N->starts_B = (int32_t *)keep_room(kept, S / 2 + 2), N->parent = (int32_t *)keep_room(kept, S / 2 + 1);
    N->flag = (int32_t *)keep_room(kept, S / 2 + 1), N->path = (int32_t *)keep_room(kept, S + 2);
    N->filled = (int32_t *)keep_room(kept, S / 2 + 1), N->starts_L = (int32_t *)keep_room(kept, S / 2 + 2);
    N->rows = (int32_t *)keep_room(kept, entries / 2 + 1), N->from = (int32_t *)keep_room(kept, entries / 2 + 1);
    N->D = keep_room(kept, S), N->room = keep_room(kept, S), N->permuted = keep_room(kept, S);
    N->data = keep_room(kept, entries);
    if (PyErr_Occurred()) return 0;
    for (Py_ssize_t k = 0; k < S; k++) position[N->order[k]] = (int32_t)k;
    for (Py_ssize_t j = 0; j < S; j++)
        for (int32_t k = N->upper_starts[j]; k < N->upper_starts[j + 1]; k++) {
            int32_t a = position[upper_rows[k]], b = position[j];
            N->starts_B[(a > b ? a : b) + 1]++;
        }
    for (Py_ssize_t j = 0; j < S; j++) N->starts_B[j + 1] += N->starts_B[j];
    for (Py_ssize_t j = 0; j < S; j++)
        for (int32_t k = N->upper_starts[j]; k < N->upper_starts[j + 1]; k++) {
            int32_t a = position[upper_rows[k]], b = position[j], column = a > b ? a : b;
            int32_t at = N->starts_B[column] + N->filled[column]++;
            N->rows[at] = a > b ? b : a, N->from[at] = k;
        }
    /* The elimination tree, and how many entries each column of L has. */
    memset(N->filled, 0, S * sizeof(int32_t));
    for (Py_ssize_t k = 0; k < S; k++) {
        N->parent[k] = -1, N->flag[k] = (int32_t)k;
        for (int32_t p = N->starts_B[k]; p < N->starts_B[k + 1]; p++)
            for (int32_t i = N->rows[p]; i < k && N->flag[i] != k; i = N->parent[i]) {
                if (N->parent[i] < 0) N->parent[i] = (int32_t)k;
                N->filled[i]++;
                N->flag[i] = (int32_t)k;
            }
    }
    int64_t total = 0;
    for (Py_ssize_t k = 0; k < S; k++) {
        N->starts_L[k] = (int32_t)total;
        total += N->filled[k];
        if (total > INT32_MAX) {
            PyErr_SetString(PyExc_MemoryError, "the factor has too many entries");
            return 0;
        }
    }
    N->starts_L[S] = (int32_t)total;
    N->L = keep_room(kept, total), N->rows_L = (int32_t *)keep_room(kept, total / 2 + 1);
    return !PyErr_Occurred();
}

/* L D L' row by row (Davis 2005); false where a pivot is zero or not finite. */
static int factor_sparse(Normal *N)
{
    Py_ssize_t S = N->states;
    double *y = N->room;
    memset(N->filled, 0, S * sizeof(int32_t));
    memset(y, 0, S * sizeof(double));
    for (Py_ssize_t k = 0; k < S; k++) {
        Py_ssize_t top = S;
        N->flag[k] = (int32_t)k;
        N->D[k] = 0.0;
        for (int32_t p = N->starts_B[k]; p < N->starts_B[k + 1]; p++) {
            int32_t i = N->rows[p];
            if (i == k) {
                N->D[k] += N->data[N->from[p]];
                continue;
            }
            y[i] += N->data[N->from[p]];
            Py_ssize_t length = 0;
            for (; N->flag[i] != k; i = N->parent[i]) {
                N->path[length++] = i;
                N->flag[i] = (int32_t)k;
            }
            while (length > 0) N->path[--top + S] = N->path[--length];
        }
        for (; top < S; top++) {
            int32_t i = N->path[top + S], end = N->starts_L[i] + N->filled[i];
            double yi = y[i], entry = yi / N->D[i];
            y[i] = 0.0;
            for (int32_t p = N->starts_L[i]; p < end; p++) y[N->rows_L[p]] -= N->L[p] * yi;
            N->D[k] -= entry * yi;
            N->rows_L[end] = (int32_t)k;
            N->L[end] = entry;
            N->filled[i]++;
        }
        if (!(N->D[k] != 0.0 && isfinite(N->D[k]))) return 0;
    }
    return 1;
}

static void solve_sparse(const Normal *N, double *b)
{
    Py_ssize_t S = N->states;
    double *x = N->permuted;
    for (Py_ssize_t k = 0; k < S; k++) x[k] = b[N->order[k]];
    for (Py_ssize_t k = 0; k < S; k++)
        for (int32_t p = N->starts_L[k]; p < N->starts_L[k + 1]; p++) x[N->rows_L[p]] -= N->L[p] * x[k];
    for (Py_ssize_t k = S - 1; k >= 0; k--) {
        double total = x[k] / N->D[k];
        for (int32_t p = N->starts_L[k]; p < N->starts_L[k + 1]; p++) total -= N->L[p] * x[N->rows_L[p]];
        x[k] = total;
    }
    for (Py_ssize_t k = 0; k < S; k++) b[N->order[k]] = x[k];
}

/* ------------------------------------------------------------------------------------------------------- in one */

static int read_normal(Kept *kept, PyObject *pattern, const Matrix *A, Normal *N)
{
    Py_ssize_t size, S = N->states = A->states, most = 0;
    N->local = keep_array(kept, pattern, "local", 'i', &size);
    N->reached_starts = keep_array(kept, pattern, "reached_starts", 'i', &size);
    N->reached = keep_array(kept, pattern, "reached", 'i', &size);
    if (PyErr_Occurred()) return 0;
    for (Py_ssize_t s = 0; s < S; s++) {
        int32_t reached = N->reached_starts[s + 1] - N->reached_starts[s];
        if (reached > most) most = reached;
    }
    N->mean = keep_room(kept, most), N->tilt = keep_room(kept, most), N->row = keep_room(kept, most);
    N->seen = (int32_t *)keep_room(kept, most);
    PyObject *order = PyObject_GetAttrString(pattern, "order");
    int dense = order == Py_None;
    Py_XDECREF(order);
    if (dense) {
        N->matrix = keep_room(kept, S * S), N->factor = keep_room(kept, S * S);
        return !PyErr_Occurred();
    }
    int32_t *rows;
    N->place = keep_array(kept, pattern, "place", 'i', &size);
    N->upper_starts = keep_array(kept, pattern, "upper_starts", 'i', &size);
    rows = keep_array(kept, pattern, "upper_rows", 'i', &size);
    N->order = keep_array(kept, pattern, "order", 'i', &size);
    return !PyErr_Occurred() && analyze(kept, N, rows);
}

/* Form the matrix, add a shift to the corner of one state, and factor it. */
static int normal_factor(Normal *N, const Matrix *A, const double *W, const double *soft, Py_ssize_t ground, double shift)
{
    Py_ssize_t S = N->states;
    int size = (int)S, info = 0;
    form(N, A, W, soft);
    for (size_t k = 0; k < sizeof LIFTS / sizeof *LIFTS; k++) {
        double lift = k ? (1 + LIFTS[k]) / (1 + LIFTS[k - 1]) : 1.0;
        for (Py_ssize_t s = 0; s < S; s++) {
            double *corner = N->place ? N->data + N->upper_starts[s + 1] - 1 : N->matrix + s * (S + 1);
            *corner = *corner * lift + (k == 0 && s == ground ? shift : 0.0);
        }
        if (N->place) {
            if (factor_sparse(N)) return 1;
        } else {
            /* Row by row the lower triangle is the upper one column by column, as LAPACK likes it. */
            memcpy(N->factor, N->matrix, S * S * sizeof(double));
            dpotrf("U", &size, N->factor, &size, &info);
            if (info == 0) return 1;
        }
    }
    return 0;
}

/* Solve for right sides that stand one after the other. */
static void normal_solve(const Normal *N, double *b, Py_ssize_t count)
{
    int size = (int)N->states, columns = (int)count, info;
    if (N->place)
        for (Py_ssize_t k = 0; k < count; k++) solve_sparse(N, b + k * N->states);
    else
        dpotrs("U", &size, &columns, N->factor, &size, b, &size, &info);
}

/* ------------------------------------------------------------------------------------------------ small systems */

/* P A = L U with partial pivoting, row by row; false where A is singular. */
static int small_factor(Py_ssize_t size, double *A, int32_t *pivot)
{
    for (Py_ssize_t k = 0; k < size; k++) {
        Py_ssize_t best = k;
        for (Py_ssize_t i = k + 1; i < size; i++)
            if (fabs(A[i * size + k]) > fabs(A[best * size + k])) best = i;
        double top = A[best * size + k];
        if (!(top != 0.0 && isfinite(top))) return 0;
        pivot[k] = (int32_t)best;
        if (best != k)
            for (Py_ssize_t j = 0; j < size; j++) {
                double swapped = A[k * size + j];
                A[k * size + j] = A[best * size + j];
                A[best * size + j] = swapped;
            }
        for (Py_ssize_t i = k + 1; i < size; i++) {
            double factor = A[i * size + k] /= top;
            if (factor != 0.0)
                for (Py_ssize_t j = k + 1; j < size; j++) A[i * size + j] -= factor * A[k * size + j];
        }
    }
    return 1;
}

static void small_solve(Py_ssize_t size, const double *A, const int32_t *pivot, double *b)
{
    for (Py_ssize_t k = 0; k < size; k++) {
        double swapped = b[k];
        b[k] = b[pivot[k]];
        b[pivot[k]] = swapped;
    }
    for (Py_ssize_t k = 0; k < size; k++)
        for (Py_ssize_t j = 0; j < k; j++) b[k] -= A[k * size + j] * b[j];
    for (Py_ssize_t k = size - 1; k >= 0; k--) {
        for (Py_ssize_t j = k + 1; j < size; j++) b[k] -= A[k * size + j] * b[j];
        b[k] /= A[k * size + k];
    }
}

#endif
