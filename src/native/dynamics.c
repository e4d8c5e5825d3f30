/* Products with the transitions P (pairs x states), in compressed sparse rows or dense, and sweeps over them.

   The functions are those of dynamics/kernels.py, which makes room for what they fill in. */

#include "arrays.h"
#include "share.h"
#include <math.h>

/* Entries of a dense row that take the time of one of a sparse row. */
#define DENSE 16
/* From here on a row is read several entries at a time. */
#define LONG_ROW 16
/* So many states ahead the row of a policy is asked for: rows of other pairs lie between. */
#define AHEAD 16

/* What a loop reads and fills in; each uses a part of it. */
typedef struct {
    Numbers data;
    Sized indices, indptr;
    Longs first, owner;
    double gamma;
    Numbers c, V;
    Sized weights;
    Numbers out;
    Longs pair;
    Sized ends, columns;
    Py_ssize_t width;
    Py_ssize_t upward;
    double *parts[MOST_THREADS];
    double found[MOST_THREADS];
} Task;

INLINE double weight_of(const Sized *weights, Py_ssize_t i)
{
    return weights->width == 1 ? ((const uint8_t *)weights->at)[i] : ((const double *)weights->at)[i];
}

INLINE Py_ssize_t whole_of(const Sized *numbers, Py_ssize_t i)
{
    return numbers->width == 4 ? ((const int32_t *)numbers->at)[i] : (Py_ssize_t)((const int64_t *)numbers->at)[i];
}

FOR_EACH_PROCESSOR static double sum_of(const double *x, Py_ssize_t size)
{
    double total = 0.0;
#pragma omp simd reduction(+ : total)
    for (Py_ssize_t i = 0; i < size; i++) total += x[i];
    return total;
}

#define Index int32_t
#define NAMED(name) name##_32
#include "rows.h"
#undef Index
#undef NAMED
#define Index int64_t
#define NAMED(name) name##_64
#include "rows.h"

/* The loop for the kind of a task's indices. */
#define LOOP(task, name) ((task).indices.width == 4 ? name##_32 : name##_64)

/* Whether row and column numbers are of one kind; else all is given back. */
static int alike(Held *held, const Sized *one, const Sized *other)
{
    if (one->width == other->width) return 1;
    give_back(held);
    PyErr_SetString(PyExc_TypeError, "numbers of rows and columns must be of one kind");
    return 0;
}

/* Share a loop whose results do not meet. */
static PyObject *shared(Held *held, Task *task, Loop *loop, Py_ssize_t size, Py_ssize_t work, Py_ssize_t threads)
{
    PyThreadState *state = let_go(work);
    share(loop, task, size, threads_for(work, threads));
    take_back(state);
    give_back(held);
    Py_RETURN_NONE;
}

static void add_some(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    for (Py_ssize_t k = 1; k < t->width; k++)
        for (Py_ssize_t s = start; s < end; s++) t->out.at[s] += t->parts[k][s];
}

/* Share a loop over states that scatters sums: the first thread does so into the result, which is zero at first, and
   each other into a part of its own, which is added in the end. */
static PyObject *scattered(Held *held, Task *task, Loop *loop, Py_ssize_t work, Py_ssize_t threads)
{
    Py_ssize_t size = task->out.size;
    int count = threads_for(work, threads);
    double *more = NULL;
    PyThreadState *state = let_go(work);
    if (count > 1) more = PyMem_RawCalloc((size_t)(count - 1) * size, sizeof(double));
    if (more == NULL) count = 1;
    task->parts[0] = task->out.at;
    for (int k = 1; k < count; k++) task->parts[k] = more + (k - 1) * size;
    share(loop, task, task->first.size - 1, count);
    if (count > 1) {
        task->width = count;
        share(add_some, task, size, threads_for(size, count));
    }
    PyMem_RawFree(more);
    take_back(state);
    give_back(held);
    Py_RETURN_NONE;
}

static PyObject *sweep(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "dww l f d d D L n", &t.data, &t.indices, &t.indptr, &t.first, &t.gamma, &t.c, &t.V,
              &t.out, &t.pair, &threads) || !alike(&held, &t.indices, &t.indptr)) return NULL;
    return shared(&held, &t, LOOP(t, sweep), t.out.size, t.data.size, threads);
}

static PyObject *advantage(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "dww l f d d D n", &t.data, &t.indices, &t.indptr, &t.owner, &t.gamma, &t.c, &t.V,
              &t.out, &threads) || !alike(&held, &t.indices, &t.indptr)) return NULL;
    return shared(&held, &t, LOOP(t, advantage), t.out.size, t.data.size, threads);
}

static PyObject *advantages(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "dww l f d d D n", &t.data, &t.indices, &t.indptr, &t.owner, &t.gamma, &t.c, &t.V,
              &t.out, &threads) || !alike(&held, &t.indices, &t.indptr)) return NULL;
    t.width = t.owner.size ? t.out.size / t.owner.size : 1;
    return shared(&held, &t, LOOP(t, advantages), t.owner.size, t.data.size * t.width, threads);
}

/* How many entries P_pi has, and where its rows end. */
static PyObject *taken_ends(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    if (!take(&held, args, count, "w l d W", &t.indptr, &t.first, &t.c, &t.ends)
        || !alike(&held, &t.indptr, &t.ends)) return NULL;
    PyThreadState *state = let_go(t.c.size);
    if (t.indptr.width == 4) taken_ends_32(&t);
    else taken_ends_64(&t);
    take_back(state);
    Py_ssize_t total = whole_of(&t.ends, t.ends.size - 1);
    give_back(&held);
    return PyLong_FromSsize_t(total);
}

static PyObject *taken(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "dww l d D W w n", &t.data, &t.indices, &t.indptr, &t.first, &t.c, &t.out, &t.columns,
              &t.ends, &threads) || !alike(&held, &t.indices, &t.indptr)) return NULL;
    return shared(&held, &t, LOOP(t, taken), t.first.size - 1, t.out.size, threads);
}

static PyObject *evaluated(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "dww f d D n", &t.data, &t.indices, &t.indptr, &t.gamma, &t.V, &t.out, &threads)
        || !alike(&held, &t.indices, &t.indptr)) return NULL;
    t.width = t.indptr.size > 1 ? t.out.size / (t.indptr.size - 1) : 1;
    Loop *loop = t.width == 1 ? LOOP(t, evaluated) : LOOP(t, evaluated_all);
    return shared(&held, &t, loop, t.indptr.size - 1, t.data.size * t.width, threads);
}

/* On one thread: sharing such scattered sums takes longer in all but large models. */
static PyObject *evaluated_back(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    if (!take(&held, args, count, "dww f d D", &t.data, &t.indices, &t.indptr, &t.gamma, &t.V, &t.out)
        || !alike(&held, &t.indices, &t.indptr)) return NULL;
    PyThreadState *state = let_go(t.data.size);
    LOOP(t, evaluated_back)(&t);
    take_back(state);
    give_back(&held);
    Py_RETURN_NONE;
}

static PyObject *flow(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "dww l f d D n", &t.data, &t.indices, &t.indptr, &t.first, &t.gamma, &t.c, &t.out,
              &threads) || !alike(&held, &t.indices, &t.indptr)) return NULL;
    return scattered(&held, &t, LOOP(t, flow), t.data.size, threads);
}

static void add_two(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    double *one = t->out.at, *two = one + t->out.size / 2;
    for (Py_ssize_t s = start; s < end; s++) {
        one[s] = two[s] = 0.0;
        for (Py_ssize_t k = 0; k < t->width; k++) {
            one[s] += t->parts[k][2 * s];
            two[s] += t->parts[k][2 * s + 1];
        }
    }
}

/* Threads scatter side by side what ends up in two rows. */
static PyObject *flow_of_two(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "dww l f d d D n", &t.data, &t.indices, &t.indptr, &t.first, &t.gamma, &t.c, &t.V,
              &t.out, &threads) || !alike(&held, &t.indices, &t.indptr)) return NULL;
    t.width = threads_for(t.data.size, threads);
    PyThreadState *state = let_go(t.data.size);
    double *parts = PyMem_RawCalloc((size_t)t.width * t.out.size, sizeof(double));
    if (parts) {
        for (Py_ssize_t k = 0; k < t.width; k++) t.parts[k] = parts + k * t.out.size;
        share(LOOP(t, flow_of_two), &t, t.first.size - 1, (int)t.width);
        share(add_two, &t, t.out.size / 2, threads_for(t.out.size, t.width));
        PyMem_RawFree(parts);
    }
    take_back(state);
    give_back(&held);
    if (!parts) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *weighted(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "dww l f m d D n", &t.data, &t.indices, &t.indptr, &t.first, &t.gamma, &t.weights,
              &t.V, &t.out, &threads) || !alike(&held, &t.indices, &t.indptr)) return NULL;
    return scattered(&held, &t, LOOP(t, weighted), t.data.size, threads);
}

/* out = M' diag(weights) M V for a dense P. */
FOR_EACH_PROCESSOR static void weighted_rows(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    Py_ssize_t num_states = t->V.size;
    const double *V = t->V.at;
    double *out = t->parts[part];
    for (Py_ssize_t s = start; s < end; s++) {
        double own = 0.0;
        for (int64_t i = t->first.at[s]; i < t->first.at[s + 1]; i++) {
            double weight = weight_of(&t->weights, i), x = 0.0;
            if (weight == 0.0) continue;
            const double *row = t->data.at + i * num_states;
#pragma omp simd reduction(+ : x)
            for (Py_ssize_t k = 0; k < num_states; k++) x += row[k] * V[k];
            x = weight * (t->gamma * x - V[s]);
            own -= x;
            x *= t->gamma;
#pragma omp simd
            for (Py_ssize_t k = 0; k < num_states; k++) out[k] += x * row[k];
        }
        out[s] += own;
    }
}

static PyObject *weighted_dense(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "d l f m d D n", &t.data, &t.first, &t.gamma, &t.weights, &t.V, &t.out, &threads))
        return NULL;
    return scattered(&held, &t, weighted_rows, t.data.size / DENSE, threads);
}

static PyObject *weighted_diagonal(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "dww l f m D n", &t.data, &t.indices, &t.indptr, &t.first, &t.gamma, &t.weights,
              &t.out, &threads) || !alike(&held, &t.indices, &t.indptr)) return NULL;
    return scattered(&held, &t, LOOP(t, weighted_diagonal), t.data.size, threads);
}

/* out = diagonal of M' diag(weights) M for a dense P. */
FOR_EACH_PROCESSOR static void diagonal_rows(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    Py_ssize_t num_states = t->out.size;
    double *out = t->parts[part];
    for (Py_ssize_t s = start; s < end; s++) {
        double own = 0.0;
        for (int64_t i = t->first.at[s]; i < t->first.at[s + 1]; i++) {
            double weight = weight_of(&t->weights, i);
            if (weight == 0.0) continue;
            const double *row = t->data.at + i * num_states;
            own += weight * (1.0 - 2.0 * t->gamma * row[s]);
            weight *= t->gamma * t->gamma;
#pragma omp simd
            for (Py_ssize_t k = 0; k < num_states; k++) out[k] += weight * row[k] * row[k];
        }
        out[s] += own;
    }
}

static PyObject *weighted_diagonal_dense(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "d l f m D n", &t.data, &t.first, &t.gamma, &t.weights, &t.out, &threads))
        return NULL;
    return scattered(&held, &t, diagonal_rows, t.data.size / DENSE, threads);
}

/* Each thread has an equal share of the triangle. */
static PyObject *gram(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "dww l f d n D n", &t.data, &t.indices, &t.indptr, &t.owner, &t.gamma, &t.c, &t.width,
              &t.out, &threads) || !alike(&held, &t.indices, &t.indptr)) return NULL;
    PyThreadState *state = let_go(t.data.size);
    int parts = threads_for(t.data.size, threads), part;
    Loop *loop = LOOP(t, gram);
    if (parts == 1) loop(&t, 0, t.width, 0);
    else {
#pragma omp parallel for num_threads(parts) schedule(static, 1)
        for (part = 0; part < parts; part++)
            loop(&t, (Py_ssize_t)(t.width * sqrt((double)part / parts)),
                 (Py_ssize_t)(t.width * sqrt((double)(part + 1) / parts)), part);
    }
    take_back(state);
    give_back(&held);
    Py_RETURN_NONE;
}

static PyObject *crossed(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Numbers values;
    Sized rows, starts;
    if (!take(&held, args, count, "dww l f n d dww D", &t.data, &t.indices, &t.indptr, &t.owner, &t.gamma, &t.width,
              &t.c, &values, &rows, &starts, &t.out) || !alike(&held, &t.indices, &t.indptr)) return NULL;
    PyThreadState *state = let_go(t.data.size);
    LOOP(t, crossed)(&t, values.at, &rows, &starts);
    take_back(state);
    give_back(&held);
    Py_RETURN_NONE;
}

/* Mean probability that pair leads to a state of lower value, of lower number, of higher number. */
static PyObject *downhill(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    double sums[3];
    if (!take(&held, args, count, "dww l d", &t.data, &t.indices, &t.indptr, &t.pair, &t.V)
        || !alike(&held, &t.indices, &t.indptr)) return NULL;
    PyThreadState *state = let_go(t.pair.size);
    LOOP(t, downhill)(&t, sums);
    take_back(state);
    double size = (double)t.pair.size;
    give_back(&held);
    return Py_BuildValue("ddd", sums[0] / size, sums[1] / size, sums[2] / size);
}

/* The largest change of V in a sweep that threads share; they read each other's V, old or new. */
static double swept(Task *t, Loop *loop, int parts)
{
    double worst = 0.0;
    share(loop, t, t->first.size - 1, parts);
    for (int k = 0; k < parts; k++) worst = larger(worst, t->found[k]);
    return worst;
}

/* One sweep that improves the policy, then up to so many that hold it, which read a fraction of P.  Returns the first's
   change, and whether it was no more than least or a share rounding of the largest value. */
static PyObject *improve(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    double least, rounding;
    Py_ssize_t parts, settles;
    if (!take(&held, args, count, "dww l f d D L n n f f n", &t.data, &t.indices, &t.indptr, &t.first, &t.gamma, &t.c,
              &t.out, &t.pair, &t.upward, &parts, &least, &rounding, &settles)
        || !alike(&held, &t.indices, &t.indptr)) return NULL;
    PyThreadState *state = let_go(t.data.size);
    parts = parts < MOST_THREADS ? parts : MOST_THREADS;
    double goal = least;
    for (Py_ssize_t s = 0; s < t.first.size - 1; s++) goal = larger(goal, rounding * fabs(t.out.at[s]));
    double change = swept(&t, LOOP(t, relax), (int)parts);
    int reached = change <= goal;
    for (Py_ssize_t k = 0; k < settles && !reached; k++)
        if (swept(&t, LOOP(t, settle), (int)parts) <= goal) break;
    take_back(state);
    give_back(&held);
    return Py_BuildValue("dN", change, PyBool_FromLong(reached));
}

/* One sweep that holds the policy; returns its largest change. */
static PyObject *hold_policy(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t parts;
    if (!take(&held, args, count, "dww l f d D L n n", &t.data, &t.indices, &t.indptr, &t.first, &t.gamma, &t.c,
              &t.out, &t.pair, &t.upward, &parts) || !alike(&held, &t.indices, &t.indptr)) return NULL;
    PyThreadState *state = let_go(t.data.size);
    double change = swept(&t, LOOP(t, settle), (int)(parts < MOST_THREADS ? parts : MOST_THREADS));
    take_back(state);
    give_back(&held);
    return PyFloat_FromDouble(change);
}

/* Push until no more than goal waits, and nowhere more than a share of what has passed, at most so many times.  Returns
   what still waits, and whether that was reached. */
static PyObject *push_often(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Numbers waiting, x;
    double least, goal, part;
    Py_ssize_t most;
    if (!take(&held, args, count, "dww l f d D D n f f f n", &t.data, &t.indices, &t.indptr, &t.first, &t.gamma, &t.c,
              &waiting, &x, &t.upward, &least, &goal, &part, &most)
        || !alike(&held, &t.indices, &t.indptr)) return NULL;
    PyThreadState *state = let_go(t.data.size);
    double left = INFINITY;
    int reached = 0;
    for (Py_ssize_t k = 0; k < most && !reached; k++) {
        left = LOOP(t, push)(&t, waiting.at, x.at, x.size, least);
        reached = left <= goal;
        for (Py_ssize_t s = 0; s < x.size && reached && part < 1.0; s++) reached = waiting.at[s] <= part * x.at[s];
    }
    take_back(state);
    give_back(&held);
    return Py_BuildValue("dN", left, PyBool_FromLong(reached));
}

static PyMethodDef functions[] = {
    FUNCTION(sweep), FUNCTION(advantage), FUNCTION(advantages), FUNCTION(taken_ends), FUNCTION(taken),
    FUNCTION(evaluated), FUNCTION(evaluated_back), FUNCTION(flow), FUNCTION(flow_of_two), FUNCTION(weighted),
    FUNCTION(weighted_dense), FUNCTION(weighted_diagonal), FUNCTION(weighted_diagonal_dense), FUNCTION(gram),
    FUNCTION(crossed), FUNCTION(downhill), FUNCTION(improve), FUNCTION(hold_policy),
    FUNCTION(push_often), {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_dynamics", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__dynamics(void) { return PyModule_Create(&module); }
