/* How work is shared by threads, and compiled for the processor at hand. */

#ifndef CVXMDP_SHARE_H
#define CVXMDP_SHARE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Loops that win by wide registers are compiled for several processors; the right one is taken when it is loaded. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12 && defined(__x86_64__) && defined(__GLIBC__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define INLINE static __forceinline
#else
#define INLINE static inline
#endif

/* Ask for memory that will be read. */
#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) ((void)0)
#endif

INLINE double smaller(double x, double y) { return x < y ? x : y; }
INLINE double larger(double x, double y) { return x > y ? x : y; }

/* A row of a module's table of functions. */
#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

#define MOST_THREADS 256
/* Steps of a loop below which a second thread would cost more than it does. */
#define LITTLE_WORK 30000
/* Steps of a loop below which other threads of Python may wait. */
#define NO_WORK 3000

/* What threads do: the part'th of the ranges into which a loop is cut. */
typedef void Loop(void *task, Py_ssize_t start, Py_ssize_t end, int part);

/* How many of the threads that are allowed a loop takes. */
static int threads_for(Py_ssize_t work, Py_ssize_t allowed)
{
    if (work < LITTLE_WORK || allowed < 1) return 1;
    return allowed < MOST_THREADS ? (int)allowed : MOST_THREADS;
}

/* Cut a loop into even ranges, one a thread.  A single one is never left to OpenMP, which hangs after a fork. */
static void share(Loop *loop, void *task, Py_ssize_t size, int threads)
{
    if (threads == 1) {
        loop(task, 0, size, 0);
        return;
    }
    int part;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (part = 0; part < threads; part++)
        loop(task, size * part / threads, size * (part + 1) / threads, part);
}

/* Let other threads of Python run, unless there is next to nothing to do. */
static PyThreadState *let_go(Py_ssize_t work)
{
    return work < NO_WORK ? NULL : PyEval_SaveThread();
}

static void take_back(PyThreadState *state)
{
    if (state) PyEval_RestoreThread(state);
}

#endif
