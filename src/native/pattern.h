/* Where the entries of the equations of a model lie, and arrays that belong to a Python object. */

#ifndef CVXMDP_PATTERN_H
#define CVXMDP_PATTERN_H

#include "arrays.h"
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------- what is kept */

typedef struct Link { struct Link *next; Py_buffer view; int borrowed; } Link;
typedef struct { Link *last; } Kept;

/* An attribute of an object as an array, held until keep_nothing; NULL and an exception where it is of another kind. */
static void *keep_array(Kept *kept, PyObject *object, const char *name, char letter, Py_ssize_t *size)
{
    if (PyErr_Occurred()) return NULL;
    PyObject *found = PyObject_GetAttrString(object, name);
    Link *link = found ? calloc(1, sizeof(Link)) : NULL;
    if (!link) {
        Py_XDECREF(found);
        return NULL;
    }
    if (PyObject_GetBuffer(found, &link->view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0 || !fits(&link->view, letter)) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError, "%s is no array of kind '%c'", name, letter);
            PyBuffer_Release(&link->view);
        }
        Py_DECREF(found);
        free(link);
        return NULL;
    }
    Py_DECREF(found);
    link->borrowed = 1;
    link->next = kept->last;
    kept->last = link;
    *size = link->view.len / link->view.itemsize;
    return link->view.buf;
}

static double *keep_numbers(Kept *kept, PyObject *object, const char *name, Py_ssize_t expected)
{
    Py_ssize_t size;
    double *found = keep_array(kept, object, name, 'd', &size);
    if (found && size != expected) {
        PyErr_Format(PyExc_ValueError, "%s has %zd entries, not %zd", name, size, expected);
        return NULL;
    }
    return found;
}

/* Room for so many numbers, all zero. */
static double *keep_room(Kept *kept, Py_ssize_t size)
{
    Link *link = calloc(1, sizeof(Link));
    void *room = link ? calloc(size > 0 ? size : 1, sizeof(double)) : NULL;
    if (!room) {
        free(link);
        PyErr_NoMemory();
        return NULL;
    }
    link->view.buf = room;
    link->next = kept->last;
    kept->last = link;
    return room;
}

static void keep_nothing(Kept *kept)
{
    while (kept->last) {
        Link *link = kept->last;
        kept->last = link->next;
        if (link->borrowed) PyBuffer_Release(&link->view);
        else free(link->view.buf);
        free(link);
    }
}

/* ------------------------------------------------------------------------------------------------------ patterns */

/* A' = Xi - gamma P, a row each pair; the pairs of a state lie next to each other. */
typedef struct {
    Py_ssize_t pairs, states;
    int64_t *first;
    int32_t *starts, *columns;
    double *values;
} Matrix;

static int read_matrix(Kept *kept, PyObject *pattern, Matrix *A)
{
    Py_ssize_t entries;
    A->first = keep_array(kept, pattern, "first", 'l', &A->states);
    A->starts = keep_array(kept, pattern, "starts", 'i', &A->pairs);
    A->columns = keep_array(kept, pattern, "columns", 'i', &entries);
    A->values = keep_numbers(kept, pattern, "values", entries);
    A->states--, A->pairs--;
    return !PyErr_Occurred();
}

static int by_number(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* rows(starts, columns, values, first, gamma, out_starts, out_columns, out_values) -> entries
   Rows of Xi - gamma P from those of P, whose columns are sorted. */
static PyObject *pattern_rows(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Ints starts, columns, out_starts, out_columns;
    Numbers values, out_values;
    Longs first;
    double gamma;
    if (!take(&held, args, count, "i i d l f I I D", &starts, &columns, &values, &first, &gamma, &out_starts,
              &out_columns, &out_values))
        return NULL;
    int32_t at = 0;
    for (Py_ssize_t s = 0; s + 1 < first.size; s++)
        for (int64_t i = first.at[s]; i < first.at[s + 1]; i++) {
            int own = 0;
            out_starts.at[i] = at;
            for (int32_t k = starts.at[i]; k <= starts.at[i + 1]; k++) {
                int end = k == starts.at[i + 1];
                if (!own && (end || columns.at[k] >= s)) {
                    own = 1;
                    out_columns.at[at] = (int32_t)s;
                    out_values.at[at++] = 1.0;
                }
                if (end) break;
                if (columns.at[k] == s) out_values.at[at - 1] -= gamma * values.at[k];
                else {
                    out_columns.at[at] = columns.at[k];
                    out_values.at[at++] = -gamma * values.at[k];
                }
            }
        }
    out_starts.at[starts.size - 1] = at;
    give_back(&held);
    return PyLong_FromLong(at);
}

/* reach(first, starts, columns, out_starts, out, local) -> entries
   The states that the pairs of each state reach, sorted, and for each entry the number of its state among them. */
static PyObject *pattern_reach(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Longs first;
    Ints starts, columns, out_starts, out, local;
    if (!take(&held, args, count, "l i i I I I", &first, &starts, &columns, &out_starts, &out, &local)) return NULL;
    Py_ssize_t S = first.size - 1;
    int32_t *number = malloc((S + 1) * sizeof(int32_t)), at = 0;
    if (!number) {
        give_back(&held);
        return PyErr_NoMemory();
    }
    memset(number, 0xff, (S + 1) * sizeof(int32_t));
    for (Py_ssize_t s = 0; s < S; s++) {
        int32_t begin = at, from = starts.at[first.at[s]], to = starts.at[first.at[s + 1]];
        out_starts.at[s] = begin;
        for (int32_t k = from; k < to; k++)
            if (number[columns.at[k]] < begin) {
                number[columns.at[k]] = at;
                out.at[at++] = columns.at[k];
            }
        qsort(out.at + begin, at - begin, sizeof(int32_t), by_number);
        for (int32_t k = begin; k < at; k++) number[out.at[k]] = k;
        for (int32_t k = from; k < to; k++) local.at[k] = number[columns.at[k]] - begin;
    }
    out_starts.at[S] = at;
    free(number);
    give_back(&held);
    return PyLong_FromLong(at);
}

/* visit(first, starts, columns, begun, out) -> count
   States that pairs lead to from where the process begins; out has one for each of them, else zero. */
static PyObject *pattern_visit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Longs first, begun;
    Ints starts, columns, out;
    if (!take(&held, args, count, "l i i l I", &first, &starts, &columns, &begun, &out)) return NULL;
    Py_ssize_t waiting = 0, seen = 0;
    int32_t *stack = malloc((out.size + 1) * sizeof(int32_t));
    if (!stack) {
        give_back(&held);
        return PyErr_NoMemory();
    }
    memset(out.at, 0, out.size * sizeof(int32_t));
    for (Py_ssize_t k = 0; k < begun.size; k++) out.at[begun.at[k]] = 1, stack[waiting++] = (int32_t)begun.at[k];
    while (waiting) {
        int32_t s = stack[--waiting];
        seen++;
        for (int32_t k = starts.at[first.at[s]]; k < starts.at[first.at[s + 1]]; k++)
            if (!out.at[columns.at[k]]) out.at[columns.at[k]] = 1, stack[waiting++] = columns.at[k];
    }
    free(stack);
    give_back(&held);
    return PyLong_FromSsize_t(seen);
}

/* couple(starts, reached, most, out_starts, out) -> entries
   The upper triangle, by columns, of the matrix in which all states are coupled that some state reaches.  Where out is
   empty the entries are only counted; -1 where they are more than most. */
static PyObject *pattern_couple(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Ints starts, reached, out_starts, out;
    Py_ssize_t most;
    if (!take(&held, args, count, "i i n I I", &starts, &reached, &most, &out_starts, &out)) return NULL;
    Py_ssize_t S = starts.size - 1, at = 0;
    int32_t *by = calloc(S + 2, sizeof(int32_t)), *from = malloc((reached.size + 1) * sizeof(int32_t));
    int32_t *seen = malloc((S + 1) * sizeof(int32_t));
    if (!by || !from || !seen) {
        PyErr_NoMemory();
        goto end;
    }
    for (Py_ssize_t k = 0; k < starts.at[S]; k++) by[reached.at[k] + 2]++;
    for (Py_ssize_t s = 0; s < S; s++) by[s + 2] += by[s + 1];
    for (Py_ssize_t s = 0; s < S; s++)
        for (int32_t k = starts.at[s]; k < starts.at[s + 1]; k++) from[by[reached.at[k] + 1]++] = (int32_t)s;
    memset(seen, 0xff, (S + 1) * sizeof(int32_t));
    for (Py_ssize_t j = 0; j < S && at >= 0; j++) {
        Py_ssize_t begin = at;
        out_starts.at[j] = (int32_t)at;
        for (int32_t k = by[j]; k < by[j + 1]; k++)
            for (int32_t r = starts.at[from[k]]; r < starts.at[from[k] + 1] && reached.at[r] <= j; r++)
                if (seen[reached.at[r]] != j) {
                    seen[reached.at[r]] = (int32_t)j;
                    if (out.size) out.at[at] = reached.at[r];
                    at++;
                }
        if (out.size) qsort(out.at + begin, at - begin, sizeof(int32_t), by_number);
        else if (at > most) at = -1;
    }
    if (at >= 0) out_starts.at[S] = (int32_t)at;
end:
    free(by), free(from), free(seen);
    give_back(&held);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(at);
}

/* ------------------------------------------------------------------------------------------------- minimum degree */

/* The graph of what is not eliminated yet.  A vertex is next to vertices, and to cliques that eliminated ones left behind
   (elements); both lists of a vertex share its part of one array, elements first, since they never grow together. */
typedef struct {
    int32_t *starts, *next_to, *elements, *vertices; /* where lists start; their entries; how many of each */
    int32_t **clique, *size;                         /* of elements: their vertices, NULL once absorbed */
    int32_t *degree, *head, *next, *before;          /* vertices by degree, in lists with two directions */
} Quotient;

static void list_vertex(Quotient *q, int32_t i, int32_t degree)
{
    q->degree[i] = degree;
    q->before[i] = -1;
    q->next[i] = q->head[degree];
    if (q->head[degree] >= 0) q->before[q->head[degree]] = i;
    q->head[degree] = i;
}

static void unlist_vertex(Quotient *q, int32_t i)
{
    if (q->before[i] >= 0) q->next[q->before[i]] = q->next[i];
    else q->head[q->degree[i]] = q->next[i];
    if (q->next[i] >= 0) q->before[q->next[i]] = q->before[i];
}

/* Both directions of all edges, each once; -1 where there is no memory. */
static int make_symmetric(Quotient *q, int32_t n, const int32_t *starts, const int32_t *columns, int32_t *mark)
{
    int32_t *ends = calloc((size_t)n + 2, sizeof(int32_t)), *both = malloc((2 * (size_t)starts[n] + 1) * sizeof(int32_t));
    if (!ends || !both) {
        free(ends), free(both);
        return -1;
    }
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = starts[i]; k < starts[i + 1]; k++) ends[i + 2]++, ends[columns[k] + 2]++;
    for (int32_t i = 0; i < n; i++) ends[i + 2] += ends[i + 1];
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = starts[i]; k < starts[i + 1]; k++) {
            both[ends[i + 1]++] = columns[k];
            both[ends[columns[k] + 1]++] = i;
        }
    int32_t at = 0;
    for (int32_t i = 0; i < n; i++) mark[i] = -1;
    for (int32_t i = 0; i < n; i++) {
        q->starts[i] = at;
        mark[i] = i;
        for (int32_t k = ends[i]; k < ends[i + 1]; k++)
            if (mark[both[k]] != i) {
                mark[both[k]] = i;
                both[at++] = both[k]; /* never ahead of what is read */
            }
        q->vertices[i] = at - q->starts[i];
    }
    free(ends);
    q->next_to = both;
    return 0;
}

/* order(starts, columns, most, out) -> work
   An order of elimination in which the vertex with about the fewest neighbours is next (approximate minimum degree:
   Amestoy, Davis and Duff 1996, without their supervariables), and the squares of the neighbours' numbers, summed up.
   Once these are more than most, the rest is left out. */
static PyObject *pattern_order(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Ints starts, columns, out;
    double most_work, work = 0;
    if (!take(&held, args, count, "i i f I", &starts, &columns, &most_work, &out)) return NULL;
    PyThreadState *others = PyEval_SaveThread(); /* a million states take seconds */
    int32_t n = (int32_t)(starts.size - 1), least = 0, stamp = 0;
    int32_t *room = calloc(10 * (size_t)n + 10, sizeof(int32_t)), *mark = room, *beyond = room + n, *seen = room + 2 * n;
    Quotient q = {room ? room + 3 * n : NULL};
    q.elements = room + 4 * n, q.vertices = room + 5 * n, q.size = room + 6 * n;
    q.degree = room + 7 * n, q.next = room + 8 * n, q.before = room + 9 * n;
    q.head = malloc((n + 1) * sizeof(int32_t));
    q.clique = calloc((size_t)n + 1, sizeof(int32_t *));
    int failed = !room || !q.head || !q.clique || make_symmetric(&q, n, starts.at, columns.at, mark) < 0;
    if (failed) goto end;
    for (int32_t d = 0; d <= n; d++) q.head[d] = -1;
    for (int32_t i = n - 1; i >= 0; i--) list_vertex(&q, i, q.vertices[i]);
    memset(mark, 0, n * sizeof(int32_t));
    for (int32_t done = 0; done < n && work <= most_work; done++) {
        while (q.head[least] < 0) least++;
        int32_t p = q.head[least], *list = q.next_to + q.starts[p], most = q.vertices[p], size = 0;
        unlist_vertex(&q, p);
        out.at[done] = p;
        for (int32_t k = 0; k < q.elements[p]; k++)
            if (q.clique[list[k]]) most += q.size[list[k]];
        int32_t *clique = malloc((most + 1) * sizeof(int32_t));
        if ((failed = !clique)) goto end;
        /* The new clique: neighbours of p, and those of the elements that p is next to, which it absorbs. */
        mark[p] = ++stamp;
        for (int32_t k = 0; k < q.elements[p]; k++) {
            int32_t e = list[k];
            if (!q.clique[e]) continue;
            for (int32_t j = 0; j < q.size[e]; j++)
                if (mark[q.clique[e][j]] != stamp) mark[clique[size++] = q.clique[e][j]] = stamp;
            free(q.clique[e]);
            q.clique[e] = NULL;
        }
        for (int32_t k = 0; k < q.vertices[p]; k++) {
            int32_t v = list[q.elements[p] + k];
            if (mark[v] != stamp) mark[clique[size++] = v] = stamp;
        }
        work += (double)size * size;
        /* How many vertices other elements have beyond the new clique. */
        for (int32_t c = 0; c < size; c++) {
            int32_t i = clique[c], *mine = q.next_to + q.starts[i];
            for (int32_t k = 0; k < q.elements[i]; k++) {
                int32_t e = mine[k];
                if (!q.clique[e]) continue;
                if (seen[e] != done + 1) seen[e] = done + 1, beyond[e] = q.size[e];
                beyond[e]--;
            }
        }
        for (int32_t c = 0; c < size; c++) {
            int32_t i = clique[c], *mine = q.next_to + q.starts[i], elements = 0, vertices = 0, degree = size - 1;
            int32_t old_elements = q.elements[i], old_vertices = q.vertices[i];
            for (int32_t k = 0; k < old_elements; k++) {
                int32_t e = mine[k];
                if (!q.clique[e]) continue;
                if (beyond[e] == 0) { /* it lies in the new one */
                    free(q.clique[e]);
                    q.clique[e] = NULL;
                    continue;
                }
                degree += beyond[e];
                mine[elements++] = e;
            }
            /* Vertices of the new clique are next to i through it.  Room for it is where p, or what it absorbed, was. */
            int32_t *kept = mine + old_elements, last = -1;
            for (int32_t k = 0; k < old_vertices; k++)
                if (mark[kept[k]] != stamp) kept[vertices++] = kept[k];
            degree += vertices;
            if (elements < old_elements) {
                mine[elements++] = p;
                memmove(mine + elements, kept, vertices * sizeof(int32_t));
            } else {
                last = vertices ? kept[0] : -1;
                mine[elements++] = p;
                if (vertices) mine[elements + vertices - 1] = last;
            }
            q.elements[i] = elements, q.vertices[i] = vertices;
            unlist_vertex(&q, i);
            if (degree > n - done - 2) degree = n - done - 2;
            if (degree < 0) degree = 0;
            list_vertex(&q, i, degree);
            if (degree < least) least = degree;
        }
        q.clique[p] = clique;
        q.size[p] = size;
        if (size == 0) {
            free(clique);
            q.clique[p] = NULL;
        }
    }
end:
    if (q.clique)
        for (int32_t e = 0; e < n; e++) free(q.clique[e]);
    free(room), free(q.head), free(q.clique), free(q.next_to);
    PyEval_RestoreThread(others);
    give_back(&held);
    return failed ? PyErr_NoMemory() : PyFloat_FromDouble(work);
}

/* places(starts, reached, upper_starts, upper_rows, out)
   For every state and every two states it reaches: where their entry lies in the upper triangle. */
static PyObject *pattern_places(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Ints starts, reached, upper_starts, upper_rows, out;
    if (!take(&held, args, count, "i i i i I", &starts, &reached, &upper_starts, &upper_rows, &out)) return NULL;
    Py_ssize_t at = 0;
    for (Py_ssize_t s = 0; s + 1 < starts.size; s++)
        for (int32_t a = starts.at[s]; a < starts.at[s + 1]; a++) {
            int32_t k = upper_starts.at[reached.at[a]];
            for (int32_t b = starts.at[s]; b <= a; b++) {
                while (upper_rows.at[k] != reached.at[b]) k++;
                out.at[at++] = k;
            }
        }
    give_back(&held);
    Py_RETURN_NONE;
}

#endif
