/* Loops over pairs of the splitting and of the prox of the dynamics, as in engines/elementwise.py. */

#include "arrays.h"
#include "share.h"
#include <math.h>

/* What a loop reads and fills in; each uses a part of it.  Rows of w, z and out are blocks of constraints. */
typedef struct {
    Numbers d, w, z, before, a, c, change, out;
    double omega, sigma, length;
    double (*sums)[5];
} Task;

/* out = 2d - w. */
FOR_EACH_PROCESSOR static void reflect(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const double *d = t->d.at;
    for (Py_ssize_t at = 0; at < t->w.size; at += t->d.size) {
        const double *w = t->w.at + at;
        double *out = t->out.at + at;
#pragma omp simd
        for (Py_ssize_t i = start; i < end; i++) out[i] = 2.0 * d[i] - w[i];
    }
}

/* out = (1 - length) (w + omega (z - d)) + length a. */
FOR_EACH_PROCESSOR static void relax(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const double *d = t->d.at, omega = t->omega, share = t->length;
    for (Py_ssize_t at = 0; at < t->w.size; at += t->d.size) {
        const double *w = t->w.at + at, *z = t->z.at + at, *anchor = t->a.at + at;
        double *out = t->out.at + at;
#pragma omp simd
        for (Py_ssize_t i = start; i < end; i++) {
            double new = w[i] + omega * (z[i] - d[i]);
            out[i] = new + share * (anchor[i] - new);
        }
    }
}

/* Of z - d the sum of absolute values, of squares and the largest; of d - before the first and the last. */
FOR_EACH_PROCESSOR static void measure(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const double *d = t->d.at, *before = t->before.at;
    double total = 0.0, square = 0.0, largest = 0.0, moved = 0.0, farthest = 0.0;
    for (Py_ssize_t at = 0; at < t->z.size; at += t->d.size) {
        const double *z = t->z.at + at;
#pragma omp simd reduction(+ : total, square) reduction(max : largest)
        for (Py_ssize_t i = start; i < end; i++) {
            double drift = fabs(z[i] - d[i]);
            total += drift;
            square += drift * drift;
            largest = larger(largest, drift);
        }
    }
#pragma omp simd reduction(+ : moved) reduction(max : farthest)
    for (Py_ssize_t i = start; i < end; i++) {
        double step = fabs(d[i] - before[i]);
        moved += step;
        farthest = larger(farthest, step);
    }
    double *sums = t->sums[part];
    sums[0] = total;
    sums[1] = square;
    sums[2] = largest;
    sums[3] = moved;
    sums[4] = farthest;
}

/* out = w / sigma - c + phi, phi given as a. */
FOR_EACH_PROCESSOR static void pull(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const double *w = t->w.at, *c = t->c.at, *phi = t->a.at, sigma = t->sigma;
    double *out = t->out.at;
#pragma omp simd
    for (Py_ssize_t i = start; i < end; i++) out[i] = w[i] / sigma - c[i] + phi[i];
}

/* d = sigma max(w / sigma - a, 0) and phi = max(a - w / sigma, 0), which takes the place of a. */
FOR_EACH_PROCESSOR static void split(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const double *w = t->w.at, sigma = t->sigma;
    double *a = t->a.at, *d = t->out.at;
#pragma omp simd
    for (Py_ssize_t i = start; i < end; i++) {
        double x = a[i] - w[i] / sigma;
        a[i] = larger(x, 0.0);
        d[i] = sigma * larger(-x, 0.0);
    }
}

/* d = sigma max(w / sigma - a - length change, 0), and its square. */
FOR_EACH_PROCESSOR static void go(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const double *w = t->w.at, *a = t->a.at, *change = t->change.at, sigma = t->sigma, length = t->length;
    double *d = t->out.at, square = 0.0;
#pragma omp simd reduction(+ : square)
    for (Py_ssize_t i = start; i < end; i++) {
        double x = sigma * larger(w[i] / sigma - a[i] - length * change[i], 0.0);
        d[i] = x;
        square += x * x;
    }
    t->sums[part][0] = square;
}

/* change = a + length change. */
FOR_EACH_PROCESSOR static void step(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const double *a = t->a.at, length = t->length;
    double *change = t->out.at;
#pragma omp simd
    for (Py_ssize_t i = start; i < end; i++) change[i] = a[i] + length * change[i];
}

/* Share a loop over pairs; returns how many threads took part.  Four entries take the time of one step elsewhere. */
static int shared(Task *task, Loop *loop, Py_ssize_t size, Py_ssize_t entries, Py_ssize_t threads)
{
    int parts = threads_for(entries / 4, threads);
    PyThreadState *state = let_go(entries / 4);
    share(loop, task, size, parts);
    take_back(state);
    return parts;
}

static PyObject *done(Held *held)
{
    give_back(held);
    Py_RETURN_NONE;
}

static PyObject *reflected(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "d d D n", &t.d, &t.w, &t.out, &threads)) return NULL;
    shared(&t, reflect, t.d.size, t.w.size, threads);
    return done(&held);
}

static PyObject *relaxed(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "d d d f d f D n", &t.w, &t.d, &t.z, &t.omega, &t.a, &t.length, &t.out, &threads))
        return NULL;
    shared(&t, relax, t.d.size, t.w.size, threads);
    return done(&held);
}

static PyObject *sizes(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    double sums[MOST_THREADS][5];
    if (!take(&held, args, count, "d d d n", &t.d, &t.z, &t.before, &threads)) return NULL;
    t.sums = sums;
    int parts = shared(&t, measure, t.d.size, t.z.size, threads);
    give_back(&held);
    for (int k = 1; k < parts; k++) {
        sums[0][0] += sums[k][0];
        sums[0][1] += sums[k][1];
        sums[0][2] = larger(sums[0][2], sums[k][2]);
        sums[0][3] += sums[k][3];
        sums[0][4] = larger(sums[0][4], sums[k][4]);
    }
    return Py_BuildValue("ddddd", sums[0][0], sqrt(sums[0][1]), sums[0][2], sums[0][3], sums[0][4]);
}

static PyObject *pulled(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "d f d d D n", &t.w, &t.sigma, &t.c, &t.a, &t.out, &threads)) return NULL;
    shared(&t, pull, t.w.size, t.w.size, threads);
    return done(&held);
}

static PyObject *part(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "D d f D n", &t.a, &t.w, &t.sigma, &t.out, &threads)) return NULL;
    shared(&t, split, t.a.size, t.a.size, threads);
    return done(&held);
}

static PyObject *along(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    double sums[MOST_THREADS][5], square = 0.0;
    if (!take(&held, args, count, "d d f d f D n", &t.a, &t.change, &t.length, &t.w, &t.sigma, &t.out, &threads))
        return NULL;
    t.sums = sums;
    int parts = shared(&t, go, t.a.size, t.a.size, threads);
    give_back(&held);
    for (int k = 0; k < parts; k++) square += sums[k][0];
    return PyFloat_FromDouble(square);
}

static PyObject *advance(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "D f d n", &t.out, &t.length, &t.a, &threads)) return NULL;
    shared(&t, step, t.a.size, t.a.size, threads);
    return done(&held);
}

static PyMethodDef functions[] = {
    FUNCTION(reflected), FUNCTION(relaxed), FUNCTION(sizes), FUNCTION(pulled), FUNCTION(part), FUNCTION(along),
    FUNCTION(advance), {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_elementwise", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__elementwise(void) { return PyModule_Create(&module); }
