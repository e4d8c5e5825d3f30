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
    int32_t *starts, *rows, *from;                 /* entries of the matrix by column, in the order of elimination */
    Py_ssize_t groups, largest;                    /* of columns of L; the largest front */
    int32_t *begins, *next, *below;                /* first column, parent, rows below */
    int64_t *below_starts, *panel_starts;
    int32_t *local_of, *waiting;
    double *L, *D, *update, *stack, *scaled, *gathered, *permuted;
    /* Dense. */
    double *matrix, *factor;
    double *mean, *tilt, *row, *scaled_row;
    int32_t *seen;
} Normal;

/* ---------------------------------------------------------------------------------------------- LAPACK, from SciPy */

static void (*dpotrf)(char *, int *, double *, int *, int *);
static void (*dgemm)(char *, char *, int *, int *, int *, double *, double *, int *, double *, int *, double *, double *,
                     int *);
static void (*dtrsm)(char *, char *, char *, char *, int *, int *, double *, double *, int *, double *, int *);
static void (*dsyrk)(char *, char *, int *, int *, double *, double *, int *, double *, double *, int *);
static void (*dpotrs)(char *, int *, int *, double *, int *, double *, int *, int *);
static void (*dgetrf)(int *, int *, double *, int *, int *, int *);
static void (*dgetrs)(char *, int *, int *, double *, int *, int *, double *, int *, int *);

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
    struct { const char *module, *name; void **to; } wanted[] = {
        {"scipy.linalg.cython_lapack", "dpotrf", (void **)&dpotrf},
        {"scipy.linalg.cython_lapack", "dpotrs", (void **)&dpotrs},
        {"scipy.linalg.cython_lapack", "dgetrf", (void **)&dgetrf},
        {"scipy.linalg.cython_lapack", "dgetrs", (void **)&dgetrs},
        {"scipy.linalg.cython_blas", "dgemm", (void **)&dgemm},
        {"scipy.linalg.cython_blas", "dtrsm", (void **)&dtrsm},
        {"scipy.linalg.cython_blas", "dsyrk", (void **)&dsyrk},
    };
    for (size_t k = 0; k < sizeof wanted / sizeof *wanted && !PyErr_Occurred(); k++) {
        PyObject *module = PyImport_ImportModule(wanted[k].module);
        PyObject *routines = module ? PyObject_GetAttrString(module, "__pyx_capi__") : NULL;
        if (routines) *wanted[k].to = find_routine(routines, wanted[k].name);
        Py_XDECREF(routines);
        Py_XDECREF(module);
    }
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

/* A row less the heaviest one, its entries in the order of their numbers; returns how many there are. */
static int32_t find_difference(const Normal *N, const Matrix *A, int64_t i, int64_t heaviest)
{
    int32_t count = 0, j = A->starts[i], k = A->starts[heaviest];
    const int32_t j_end = A->starts[i + 1], k_end = A->starts[heaviest + 1];
    while (j < j_end || k < k_end) {
        const int32_t a = j < j_end ? N->local[j] : INT32_MAX, b = k < k_end ? N->local[k] : INT32_MAX;
        N->seen[count] = a < b ? a : b;
        N->row[count++] = (a <= b ? A->values[j++] : 0.0) - (b <= a ? A->values[k++] : 0.0);
    }
    return count;
}

/* Add high low' to the entries of a state; where has their numbers, in rising order: among the states that it reaches,
   or in a dense matrix among all. */
static inline void add_products(const Normal *N, int64_t base, int32_t count, const int32_t *where, const double *high,
                                const double *low)
{
    const int in_a_row = count > 0 && where[count - 1] - where[0] == count - 1;
    for (int32_t j = 0; j < count; j++) {
        const int32_t a = where[j];
        const double scaled = high[j];
        if (N->place) {
            const int32_t *line = N->place + base + (int64_t)a * (a + 1) / 2;
            for (int32_t k = 0; k <= j; k++) N->data[line[where[k]]] += scaled * low[k];
        } else if (in_a_row) {
            double *line = N->matrix + (int64_t)a * N->states + where[0];
#pragma omp simd
            for (int32_t k = 0; k <= j; k++) line[k] += scaled * low[k];
        } else {
            double *line = N->matrix + (int64_t)a * N->states;
            for (int32_t k = 0; k <= j; k++) line[where[k]] += scaled * low[k];
        }
    }
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
                const int32_t from = A->starts[i], count = A->starts[i + 1] - from;
                for (int32_t j = 0; j < count; j++) N->scaled_row[j] = W[i] * A->values[from + j];
                add_products(N, base, count, (N->place ? N->local : A->columns) + from, N->scaled_row, A->values + from);
            }
        } else {
            double total;
            int64_t heaviest = find_mean(N, A, s, W, &total);
            for (int64_t i = A->first[s]; i < A->first[s + 1]; i++) {
                if (i == heaviest) continue;
                int32_t count = find_difference(N, A, i, heaviest);
                for (int32_t j = 0; j < count; j++) N->scaled_row[j] = W[i] * N->row[j];
                if (!N->place)
                    for (int32_t j = 0; j < count; j++) N->seen[j] = mine[N->seen[j]];
                add_products(N, base, count, N->seen, N->scaled_row, N->row);
            }
            for (int32_t a = 0; a < size; a++) {
                const double up = soft[s] * total * N->mean[a], down = total * N->tilt[a];
                if (N->place) {
                    const int32_t *line = N->place + base + (int64_t)a * (a + 1) / 2;
                    for (int32_t b = 0; b <= a; b++) N->data[line[b]] += up * N->mean[b] - down * N->tilt[b];
                } else if (mine[size - 1] - mine[0] == size - 1) {
                    double *line = N->matrix + (int64_t)mine[a] * N->states + mine[0];
#pragma omp simd
                    for (int32_t b = 0; b <= a; b++) line[b] += up * N->mean[b] - down * N->tilt[b];
                } else {
                    double *line = N->matrix + (int64_t)mine[a] * N->states;
                    for (int32_t b = 0; b <= a; b++) line[mine[b]] += up * N->mean[b] - down * N->tilt[b];
                }
            }
        }
        base += (int64_t)size * (size + 1) / 2;
    }
}

/* ------------------------------------------------------------------------------------------------- sparse factors */

/* L D L' by fronts (Duff and Reid 1983).  Columns of L with the same rows below them form a group, which is one dense
   panel; groups are eliminated children first, and each hands to its parent what it adds to the rest (its update). */

#define PLAIN 24 /* fronts up to this size are updated by plain loops: calling BLAS would take longer */
#define BLOCK 32 /* columns of a panel that are eliminated one by one before BLAS updates the others */
#define WIDE 96  /* from so many columns on LAPACK eliminates them: twice as fast in fronts of a thousand */

/* Groups are merged with their parent while the zeros that brings in are at most this share of the panel, by columns. */
static const struct { Py_ssize_t columns; double zeros; } MERGED[] = {{4, 1.0}, {16, 0.5}, {48, 0.1}, {1 << 30, 0.05}};

/* The parents of a matrix's elimination tree, and the entries of each column of L below its diagonal.  Entries of the
   matrix are given by the later of their two numbers. */
static void find_tree(int32_t S, const int32_t *starts, const int32_t *rows, int32_t *parent, int32_t *counts, int32_t *flag)
{
    for (int32_t k = 0; k < S; k++) {
        parent[k] = -1, counts[k] = 0, flag[k] = k;
        for (int32_t p = starts[k]; p < starts[k + 1]; p++)
            for (int32_t i = rows[p]; flag[i] != k; i = parent[i]) {
                if (parent[i] < 0) parent[i] = k;
                counts[i]++;
                flag[i] = k;
            }
    }
}

/* Number the vertices of a tree so that children come right before their parents: out[k] is the k-th. */
static void follow_tree(int32_t S, const int32_t *parent, int32_t *out, int32_t *first, int32_t *next, int32_t *stack)
{
    for (int32_t k = 0; k < S; k++) first[k] = -1;
    for (int32_t k = S - 1; k >= 0; k--)
        if (parent[k] >= 0) next[k] = first[parent[k]], first[parent[k]] = k;
    int32_t at = 0;
    for (int32_t root = 0; root < S; root++) {
        if (parent[root] >= 0) continue;
        int32_t top = 0;
        stack[0] = root;
        while (top >= 0) {
            int32_t k = stack[top], child = first[k];
            if (child < 0) out[at++] = k, top--;
            else first[k] = next[child], stack[++top] = child;
        }
    }
}

/* Entries of the matrix in the order of elimination, by the later (or the earlier) of their two numbers. */
static void sort_entries(const Normal *N, const int32_t *upper_rows, const int32_t *position, int earlier, int32_t *starts,
                         int32_t *rows, int32_t *from)
{
    Py_ssize_t S = N->states;
    memset(starts, 0, (S + 2) * sizeof(int32_t));
    for (int pass = 0; pass < 2; pass++) {
        for (Py_ssize_t j = 0; j < S; j++)
            for (int32_t k = N->upper_starts[j]; k < N->upper_starts[j + 1]; k++) {
                int32_t a = position[upper_rows[k]], b = position[j];
                int32_t by = (a > b) != earlier ? a : b, other = (a > b) != earlier ? b : a;
                if (!pass) starts[by + 2]++;
                else {
                    int32_t at = starts[by + 1]++;
                    rows[at] = other;
                    if (from) from[at] = k;
                }
            }
        if (!pass)
            for (Py_ssize_t k = 0; k < S; k++) starts[k + 2] += starts[k + 1];
    }
}

static int analyze(Kept *kept, Normal *N, const int32_t *given, const int32_t *upper_rows)
{
    Py_ssize_t S = N->states, entries = N->upper_starts[S];
    int32_t *room = malloc((8 * S + 8 + entries) * sizeof(int32_t));
    N->order = (int32_t *)keep_room(kept, S / 2 + 1);
    N->starts = (int32_t *)keep_room(kept, S / 2 + 2);
    N->rows = (int32_t *)keep_room(kept, entries / 2 + 1), N->from = (int32_t *)keep_room(kept, entries / 2 + 1);
    N->begins = (int32_t *)keep_room(kept, S / 2 + 2), N->next = (int32_t *)keep_room(kept, S / 2 + 1);
    N->below_starts = (int64_t *)keep_room(kept, S + 2), N->panel_starts = (int64_t *)keep_room(kept, S + 2);
    N->local_of = (int32_t *)keep_room(kept, S / 2 + 1);
    N->data = keep_room(kept, entries), N->D = keep_room(kept, S), N->permuted = keep_room(kept, S);
    if (!room) PyErr_NoMemory();
    if (PyErr_Occurred()) {
        free(room);
        return 0;
    }
    int32_t *position = room, *parent = position + S, *counts = parent + S, *flag = counts + S, *first = flag + S;
    int32_t *next = first + S, *starts = next + S, *rows = starts + S + 2, n = (int32_t)S;
    for (Py_ssize_t k = 0; k < S; k++) position[given[k]] = (int32_t)k;
    sort_entries(N, upper_rows, position, 0, starts, rows, NULL);
    find_tree(n, starts, rows, parent, counts, flag);
    follow_tree(n, parent, flag, first, next, counts);
    for (Py_ssize_t k = 0; k < S; k++) N->order[k] = given[flag[k]];
    for (Py_ssize_t k = 0; k < S; k++) position[N->order[k]] = (int32_t)k;
    sort_entries(N, upper_rows, position, 0, starts, rows, NULL);
    find_tree(n, starts, rows, parent, counts, flag);
    sort_entries(N, upper_rows, position, 1, N->starts, N->rows, N->from);
    /* Groups: columns whose rows are those of the next one and its own; then children that are nearly so. */
    Py_ssize_t groups = 0;
    double *zeros = malloc((S + 1) * sizeof(double));
    if (!zeros) {
        free(room);
        PyErr_NoMemory();
        return 0;
    }
    for (int32_t k = 0; k < n; k++) {
        if (k == 0 || !(parent[k - 1] == k && counts[k - 1] == counts[k] + 1)) {
            N->begins[groups] = k;
            zeros[groups++] = 0.0;
        }
        N->begins[groups] = k + 1;
        /* Is the group complete, and can it take the one before it, whose parent it is? */
        if (k + 1 < n && parent[k] == k + 1 && counts[k] == counts[k + 1] + 1) continue;
        while (groups > 1) {
            int32_t from = N->begins[groups - 2], middle = N->begins[groups - 1], end = k + 1;
            if (parent[middle - 1] < middle || parent[middle - 1] >= end) break;
            double columns = end - from, below = counts[end - 1];
            double more = zeros[groups - 2] + zeros[groups - 1]
                          + (double)(middle - from) * (end - middle + below - counts[middle - 1]);
            double size = columns * (columns + 1) / 2 + columns * below;
            int rule = 0;
            while (columns > MERGED[rule].columns) rule++;
            if (more > MERGED[rule].zeros * size) break;
            zeros[groups - 2] = more;
            N->begins[--groups] = end;
        }
    }
    free(zeros);
    N->groups = groups;
    /* Parents of groups, and the rows of each below its columns. */
    for (Py_ssize_t g = 0; g < groups; g++)
        for (int32_t k = N->begins[g]; k < N->begins[g + 1]; k++) first[k] = (int32_t)g;
    int64_t below = 0, panel = 0, stack = 0, most_stack = 0, most_update = 0;
    for (Py_ssize_t g = 0; g < groups; g++) {
        int32_t last = N->begins[g + 1] - 1;
        int64_t columns = N->begins[g + 1] - N->begins[g], under = counts[last];
        N->next[g] = parent[last] < 0 ? -1 : first[parent[last]];
        N->below_starts[g] = below, N->panel_starts[g] = panel;
        below += under, panel += columns * (columns + under);
        if (under * under > most_update) most_update = under * under;
        if (columns + under > N->largest) N->largest = columns + under;
    }
    N->below_starts[groups] = below, N->panel_starts[groups] = panel;
    N->below = (int32_t *)keep_room(kept, below / 2 + 1);
    N->L = keep_room(kept, panel);
    N->update = keep_room(kept, most_update), N->scaled = keep_room(kept, (int64_t)N->largest * BLOCK);
    N->gathered = keep_room(kept, N->largest);
    int32_t *children = next; /* how many each group has, while the stack is measured */
    memset(children, 0, S * sizeof(int32_t));
    memset(flag, 0xff, S * sizeof(int32_t));
    int64_t *sizes = malloc((groups + 1) * sizeof(int64_t));
    if (!sizes) PyErr_NoMemory();
    if (PyErr_Occurred()) {
        free(room), free(sizes);
        return 0;
    }
    Py_ssize_t depth = 0;
    for (Py_ssize_t g = 0; g < groups; g++) {
        int32_t *mine = N->below + N->below_starts[g], end = N->begins[g + 1], count = 0;
        for (int32_t k = N->begins[g]; k < end; k++)
            for (int32_t p = N->starts[k]; p < N->starts[k + 1]; p++)
                if (N->rows[p] >= end && flag[N->rows[p]] != g) flag[mine[count++] = N->rows[p]] = (int32_t)g;
        for (int32_t c = 0; c < children[g]; c++) {
            Py_ssize_t child = sizes[depth - 1 - c];
            for (int64_t r = N->below_starts[child]; r < N->below_starts[child + 1]; r++)
                if (N->below[r] >= end && flag[N->below[r]] != g) flag[mine[count++] = N->below[r]] = (int32_t)g;
        }
        qsort(mine, count, sizeof(int32_t), by_number);
        for (int32_t c = 0; c < children[g]; c++) {
            Py_ssize_t child = sizes[--depth];
            int64_t under = N->below_starts[child + 1] - N->below_starts[child];
            stack -= under * under;
        }
        if (N->next[g] >= 0) {
            int64_t under = N->below_starts[g + 1] - N->below_starts[g];
            children[N->next[g]]++;
            sizes[depth++] = g;
            stack += under * under;
            if (stack > most_stack) most_stack = stack;
        }
    }
    free(room), free(sizes);
    N->stack = keep_room(kept, most_stack);
    N->waiting = (int32_t *)keep_room(kept, groups / 2 + 1);
    return !PyErr_Occurred();
}

/* Eliminate columns of a panel, which has size rows, from one column on; false where a pivot is zero or not finite. */
static int eliminate_columns(double *panel, Py_ssize_t size, Py_ssize_t from, Py_ssize_t to, double *D)
{
    for (Py_ssize_t k = from; k < to; k++) {
        double *column = panel + k * size, pivot = column[k], inverse = 1 / pivot;
        if (!(pivot != 0.0 && isfinite(pivot))) return 0;
        D[k] = pivot;
        for (Py_ssize_t j = k + 1; j < to; j++) {
            double factor = column[j] * inverse, *other = panel + j * size;
            if (factor != 0.0)
                for (Py_ssize_t i = j; i < size; i++) other[i] -= factor * column[i];
        }
        for (Py_ssize_t i = k + 1; i < size; i++) column[i] *= inverse;
    }
    return 1;
}

/* out - (rows from row on) D (rows from column on)' for columns of a panel that were eliminated: its lower triangle. */
static void take_products(const Normal *N, const double *panel, Py_ssize_t size, Py_ssize_t from, Py_ssize_t to,
                          const double *D, Py_ssize_t begin, Py_ssize_t end, double *out, Py_ssize_t stride)
{
    /* out belongs to rows and columns from begin to end. */
    Py_ssize_t count = end - begin, rank = to - from;
    if (count <= PLAIN) {
        for (Py_ssize_t k = from; k < to; k++) {
            const double *column = panel + k * size + begin;
            for (Py_ssize_t j = 0; j < count; j++) {
                double factor = column[j] * D[k];
                if (factor != 0.0)
                    for (Py_ssize_t i = j; i < count; i++) out[i + j * stride] -= factor * column[i];
            }
        }
        return;
    }
    for (Py_ssize_t k = 0; k < rank; k++)
        for (Py_ssize_t i = 0; i < count; i++)
            N->scaled[i + k * count] = panel[begin + i + (from + k) * size] * D[from + k];
    double minus = -1.0, one = 1.0;
    int lda = (int)size, ldb = (int)count, ldc = (int)stride, inner = (int)rank;
    for (Py_ssize_t j = 0; j < count; j += 2 * BLOCK) {
        int height = (int)(count - j), width = (int)(count - j < 2 * BLOCK ? count - j : 2 * BLOCK);
        dgemm("N", "T", &height, &width, &inner, &minus, (double *)panel + begin + j + from * size, &lda, N->scaled + j,
              &ldb, &one, out + j + j * stride, &ldc);
    }
}

/* The same for a wide panel and its update at once; false where it is not positive definite. */
static int eliminate_wide(double *panel, Py_ssize_t columns, Py_ssize_t under, double *D, double *update)
{
    double minus = -1.0, one = 1.0;
    int width = (int)columns, height = (int)under, ld = (int)(columns + under), info;
    dpotrf("L", &width, panel, &ld, &info);
    if (info) return 0;
    if (under) {
        dtrsm("R", "L", "T", "N", &height, &width, &one, panel, &ld, panel + columns, &ld);
        dsyrk("L", "N", &height, &width, &minus, panel + columns, &ld, &one, update, &height);
    }
    for (Py_ssize_t k = 0; k < columns; k++) {
        double *column = panel + k * ld, pivot = column[k], inverse = 1 / pivot;
        D[k] = pivot * pivot;
        for (Py_ssize_t i = k + 1; i < ld; i++) column[i] *= inverse;
    }
    return 1;
}

static int factor_sparse(Normal *N)
{
    double *top = N->stack;
    Py_ssize_t depth = 0;
    for (Py_ssize_t g = 0; g < N->groups; g++) {
        int32_t begin = N->begins[g], end = N->begins[g + 1], *below = N->below + N->below_starts[g];
        Py_ssize_t columns = end - begin, under = N->below_starts[g + 1] - N->below_starts[g], size = columns + under;
        double *panel = N->L + N->panel_starts[g], *update = N->update, *D = N->D + begin;
        memset(panel, 0, columns * size * sizeof(double));
        memset(update, 0, under * under * sizeof(double));
        for (Py_ssize_t r = 0; r < under; r++) N->local_of[below[r]] = (int32_t)(columns + r);
        for (int32_t k = begin; k < end; k++)
            for (int32_t p = N->starts[k]; p < N->starts[k + 1]; p++) {
                int32_t row = N->rows[p] < end ? N->rows[p] - begin : N->local_of[N->rows[p]];
                panel[row + (k - begin) * size] += N->data[N->from[p]];
            }
        /* What the children add. */
        while (depth > 0 && N->next[N->waiting[depth - 1]] == g) {
            Py_ssize_t child = N->waiting[--depth], count = N->below_starts[child + 1] - N->below_starts[child];
            const int32_t *theirs = N->below + N->below_starts[child];
            top -= count * count;
            for (Py_ssize_t j = 0; j < count; j++) {
                Py_ssize_t to = theirs[j] < end ? theirs[j] - begin : N->local_of[theirs[j]];
                double *column = to < columns ? panel + to * size : update + (to - columns) * under - columns;
                for (Py_ssize_t i = j; i < count; i++) {
                    Py_ssize_t row = theirs[i] < end ? theirs[i] - begin : N->local_of[theirs[i]];
                    column[row] += top[i + j * count];
                }
            }
        }
        if (columns >= WIDE && !eliminate_wide(panel, columns, under, D, update)) return 0;
        for (Py_ssize_t k = 0; columns < WIDE && k < columns; k += BLOCK) {
            Py_ssize_t to = k + BLOCK < columns ? k + BLOCK : columns;
            if (!eliminate_columns(panel, size, k, to, D)) return 0;
            if (to < columns) {
                /* The other columns of the panel: their square, and what is below it. */
                take_products(N, panel, size, k, to, D, to, columns, panel + to + to * size, size);
                double minus = -1.0, one = 1.0;
                int height = (int)under, width = (int)(columns - to), inner = (int)(to - k), ld = (int)size;
                for (Py_ssize_t j = 0; j < inner; j++)
                    for (Py_ssize_t i = 0; i < width; i++)
                        N->scaled[i + j * width] = panel[to + i + (k + j) * size] * D[k + j];
                if (under)
                    dgemm("N", "T", &height, &width, &inner, &minus, panel + columns + k * size, &ld, N->scaled, &width, &one,
                          panel + columns + to * size, &ld);
            }
            if (under) take_products(N, panel, size, k, to, D, columns, size, update, under);
        }
        if (N->next[g] >= 0) {
            memcpy(top, update, under * under * sizeof(double));
            top += under * under;
            N->waiting[depth++] = (int32_t)g;
        }
    }
    return 1;
}

static void solve_sparse(const Normal *N, double *b)
{
    Py_ssize_t S = N->states;
    double *x = N->permuted, *t = N->gathered;
    for (Py_ssize_t k = 0; k < S; k++) x[k] = b[N->order[k]];
    for (Py_ssize_t g = 0; g < N->groups; g++) {
        int32_t begin = N->begins[g], *below = N->below + N->below_starts[g];
        Py_ssize_t columns = N->begins[g + 1] - begin, under = N->below_starts[g + 1] - N->below_starts[g];
        const double *panel = N->L + N->panel_starts[g];
        double *mine = x + begin;
        for (Py_ssize_t r = 0; r < under; r++) t[r] = 0.0;
        for (Py_ssize_t k = 0; k < columns; k++, panel += columns + under) {
            double here = mine[k];
            for (Py_ssize_t i = k + 1; i < columns; i++) mine[i] -= panel[i] * here;
            for (Py_ssize_t r = 0; r < under; r++) t[r] += panel[columns + r] * here;
        }
        for (Py_ssize_t r = 0; r < under; r++) x[below[r]] -= t[r];
    }
    for (Py_ssize_t k = 0; k < S; k++) x[k] /= N->D[k];
    for (Py_ssize_t g = N->groups - 1; g >= 0; g--) {
        int32_t begin = N->begins[g], *below = N->below + N->below_starts[g];
        Py_ssize_t columns = N->begins[g + 1] - begin, under = N->below_starts[g + 1] - N->below_starts[g];
        double *mine = x + begin;
        for (Py_ssize_t r = 0; r < under; r++) t[r] = x[below[r]];
        for (Py_ssize_t k = columns - 1; k >= 0; k--) {
            const double *panel = N->L + N->panel_starts[g] + k * (columns + under);
            double total = 0.0;
            for (Py_ssize_t i = k + 1; i < columns; i++) total += panel[i] * mine[i];
            double rest = 0.0;
#pragma omp simd reduction(+ : rest)
            for (Py_ssize_t r = 0; r < under; r++) rest += panel[columns + r] * t[r];
            mine[k] -= total + rest;
        }
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
    double **rooms[] = {&N->mean, &N->tilt, &N->row, &N->scaled_row};
    for (size_t k = 0; k < sizeof rooms / sizeof *rooms; k++) *rooms[k] = keep_room(kept, most);
    N->seen = (int32_t *)keep_room(kept, most);
    PyObject *order = PyObject_GetAttrString(pattern, "order");
    int dense = order == Py_None;
    Py_XDECREF(order);
    if (dense) {
        N->matrix = keep_room(kept, S * S), N->factor = keep_room(kept, S * S);
        return !PyErr_Occurred();
    }
    int32_t *rows, *given;
    N->place = keep_array(kept, pattern, "place", 'i', &size);
    N->upper_starts = keep_array(kept, pattern, "upper_starts", 'i', &size);
    rows = keep_array(kept, pattern, "upper_rows", 'i', &size);
    given = keep_array(kept, pattern, "order", 'i', &size);
    return !PyErr_Occurred() && analyze(kept, N, given, rows);
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

/* P A = L U with partial pivoting; false where A is singular.  A lies row by row, so that LAPACK sees its transpose. */
static int small_factor(Py_ssize_t size, double *A, int *pivot)
{
    int n = (int)size, info;
    dgetrf(&n, &n, A, &n, pivot, &info);
    return info == 0;
}

static void small_solve(Py_ssize_t size, double *A, int *pivot, double *b)
{
    int n = (int)size, one = 1, info;
    dgetrs("T", &n, &one, A, &n, pivot, b, &n, &info);
}

#endif
