/* Entry-by-entry equations of projections, as in constraints/kernels.py: each solves one monotone equation an entry for
   a given multiplier, and returns sums that say how to change the multiplier. */

#include "arrays.h"
#include "share.h"
#include <math.h>

#define MANY 128

typedef struct {
    Numbers x, weight, log_ratio, out;
    double step, p;
    double sums[MOST_THREADS][2];
} Task;

INLINE int64_t bits_of(double x)
{
    int64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

INLINE double number_of(int64_t bits)
{
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

#define ROOT_OF_HALF 0x3FE6A09E667F3BCD
#define MANTISSA 0x000FFFFFFFFFFFFF

/* e and f with x = 2^e (1 + f) and 1 + f within a factor sqrt(2) of one, for positive normal x.  While e is a whole
   number, 2048 is added, so that it is not negative; then it is the end of the mantissa of a number from 2^52 on. */
INLINE double split(double x, double *f)
{
    uint64_t raised = (uint64_t)bits_of(x) - ROOT_OF_HALF + ((uint64_t)2048 << 52);
    *f = number_of((int64_t)((raised & MANTISSA) + ROOT_OF_HALF)) - 1.0;
    return number_of((int64_t)(raised >> 52 | 0x4330000000000000)) - (4503599627370496.0 + 2048.0);
}

/* log x as fdlibm does, without a branch, so that several entries are done at once. */
INLINE double exact_log(double x)
{
    double f, e = split(x, &f);
    double s = f / (2.0 + f), q = s * s, h = 0.5 * f * f;
    double tail = 1.818357216161805012e-01 + q * (1.531383769920937332e-01 + q * 1.479819860511658591e-01);
    tail = 3.999999999940941908e-01 + q * (2.857142874366239149e-01 + q * (2.222219843214978396e-01 + q * tail));
    tail = q * (6.666666666666735130e-01 + q * tail);
    return e * 6.93147180369123816490e-01 - (h - (s * (h + tail) + e * 1.90821492927058770002e-10) - f);
}

/* log x to an error of 2e-5. */
INLINE double rough_log(double x)
{
    double f, e = split(x, &f);
    double tail = 0.33841321 + f * (-0.27203846 + f * 0.16801533);
    return e * 0.6931471805599453 + f * (0.99987975 + f * (-0.49934377 + f * tail));
}

/* exp x to a relative error of 5e-5, for x between -700 and 700.  Adding 1.5 2^52 rounds to a whole number, which is
   then the end of the mantissa. */
INLINE double rough_exp(double x)
{
    double shifted = x * 1.4426950408889634 + 6755399441055744.0;
    double r = x - (shifted - 6755399441055744.0) * 0.6931471805599453;
    double power = number_of((int64_t)(((uint64_t)bits_of(shifted) + 1023) << 52));
    return power * (1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0)))));
}

/* A w near the root of w + log w = b (Lambert's W of e^b), for b from -700 to 1e150. */
INLINE double lambert_start(double b)
{
    int large = b > 1.0;
    double log_b = rough_log(larger(b, 1.0)), t = rough_exp(smaller(b, 1.0));
    double over = t * (1.0 + t * (4.0 / 3.0)), under = 1.0 + t * (7.0 / 3.0 + t * (5.0 / 6.0)), begin = b - log_b;
    over = large ? log_b : over;
    under = large ? b : under;
    return (large ? begin : 0.0) + over / under;
}

/* By which share w has to grow to meet w + log w = b, where q is what is missing.  Fritsch, Shafer and Crowley (1973):
   the error falls to its fourth power, so that twice is enough. */
INLINE double lambert_step(double w, double q)
{
    double t = 2.0 * (1.0 + w) * (1.0 + w + q * (2.0 / 3.0));
    return q * (t - q) / ((1.0 + w) * (t - 2.0 * q));
}

/* z + k (log(z / r) + 1) = y with k = step weight and log_ratio = log(weight / r); sum z log(z / r) and its slope.
   Each step of an equation waits for the one before, hence one step of many equations is done after the other. */
FOR_EACH_PROCESSOR static void entropic_some(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    Task *t = given;
    double total = 0.0, slope = 0.0, step = t->step, log_step = log(step), b[MANY], w[MANY];
    for (; start < end; start += MANY) {
        const double *y = t->x.at + start, *weight = t->weight.at + start, *log_ratio = t->log_ratio.at + start;
        double *z = t->out.at + start;
        int count = end - start < MANY ? (int)(end - start) : MANY;
#pragma omp simd
        for (int i = 0; i < count; i++) b[i] = y[i] / (step * weight[i]) - 1.0 - (log_step + log_ratio[i]);
#pragma omp simd
        for (int i = 0; i < count; i++) w[i] = lambert_start(smaller(larger(b[i], -700.0), 1e150));
#pragma omp simd
        for (int i = 0; i < count; i++) {
            double c = smaller(larger(b[i], -700.0), 1e150);
            w[i] *= 1.0 + lambert_step(w[i], c - w[i] - rough_log(w[i]));
        }
#pragma omp simd reduction(+ : total, slope)
        for (int i = 0; i < count; i++) {
            double c = smaller(larger(b[i], -700.0), 1e150), log_w = exact_log(w[i]);
            double e = lambert_step(w[i], c - w[i] - log_w), k = step * weight[i];
            double logarithm = log_w + e * (1.0 - 0.5 * e) + (log_step + log_ratio[i]), root = w[i] * (1.0 + e);
            logarithm = b[i] > -700.0 ? logarithm : 0.0;
            root = b[i] > -700.0 ? root : 0.0;
            z[i] = k * root;
            total += k * root * logarithm;
            slope -= weight[i] * (logarithm + 1.0) * (logarithm + 1.0) * root / (1.0 + root);
        }
    }
    t->sums[part][0] = total;
    t->sums[part][1] = slope;
}

/* The limit of small steps: z = the nearest nonnegative entries.  Weights count pairs, so that z / weight is normal. */
FOR_EACH_PROCESSOR static void entropic_limit(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    Task *t = given;
    const double *y = t->x.at, *weight = t->weight.at, *log_ratio = t->log_ratio.at;
    double *z = t->out.at, total = 0.0, slope = 0.0;
#pragma omp simd reduction(+ : total, slope)
    for (Py_ssize_t i = start; i < end; i++) {
        int some = (y[i] > 1e-300) & (log_ratio[i] < INFINITY);
        double logarithm = exact_log(some ? y[i] / weight[i] : 1.0) + log_ratio[i];
        logarithm = some ? logarithm : 0.0;
        double new = some ? y[i] : 0.0, bend = weight[i] * (logarithm + 1.0) * (logarithm + 1.0);
        z[i] = new;
        total += new * logarithm;
        slope -= some ? bend : 0.0;
    }
    t->sums[part][0] = total;
    t->sums[part][1] = slope;
}

/* alpha x^q + beta x = o with q >= 1, which is convex, so that Newton from above never overshoots; raised is x^q. */
static double power_root(double o, double q, double alpha, double beta, double *raised)
{
    double x = smaller(pow(o / alpha, 1.0 / q), o / beta);
    for (int k = 0; k < 60; k++) {
        *raised = pow(x, q);
        double change = (alpha * *raised + beta * x - o) * x / (alpha * q * *raised + beta * x);
        x -= change;
        if (!(change > 1e-8 * x)) break; /* Newton's next error is about the square of this */
    }
    *raised = pow(x, q);
    return x;
}

/* t + multiplier t^(p - 1) = o for o >= 0 and p > 1, written as alpha x^q + beta x = o; sum t^p and its slope.  Where p
   is 3 or 1.5, q is 2.  Every operation is rounded as it stands. */
INLINE void power_loop(Task *task, Py_ssize_t start, Py_ssize_t end, int part, int squared, int upper)
{
    const double *o = task->x.at, p = task->p, multiplier = task->step;
    double *t = task->out.at, total = 0.0, slope = 0.0;
    double q = upper ? p - 1.0 : 1.0 / (p - 1.0), alpha = upper ? multiplier : 1.0, beta = upper ? 1.0 : multiplier;
    for (Py_ssize_t i = start; i < end; i++) {
        double x, raised;
        t[i] = 0.0;
        if (!(o[i] > 0.0)) continue;
        if (squared) {
            x = 2.0 * o[i] / (beta + sqrt(beta * beta + 4.0 * alpha * o[i]));
            raised = x * x;
        } else
            x = power_root(o[i], q, alpha, beta, &raised);
        if (!(raised > 0.0)) continue;
        double size = upper ? x : raised, rest = upper ? raised : x; /* rest is size^(p - 1) */
        t[i] = size;
        total += rest * size;
        slope -= p * rest * rest / (1.0 + multiplier * (p - 1.0) * rest / size);
    }
    task->sums[part][0] = total;
    task->sums[part][1] = slope;
}

static void power_some(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    Task *task = given;
    if (task->p == 3.0) power_loop(task, start, end, part, 1, 1);
    else if (task->p == 1.5) power_loop(task, start, end, part, 1, 0);
    else power_loop(task, start, end, part, 0, task->p >= 2.0);
}

/* sum w z^2 for z = x / (1 + m w), and its slope. */
FOR_EACH_PROCESSOR static void weighted_some(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    Task *t = given;
    const double *x = t->x.at, *w = t->weight.at, m = t->step;
    double total = 0.0, slope = 0.0;
#pragma omp simd reduction(+ : total, slope)
    for (Py_ssize_t i = start; i < end; i++) {
        double share = 1.0 / (1.0 + m * w[i]), square = w[i] * x[i] * x[i] * share * share;
        total += square;
        slope -= 2.0 * w[i] * share * square;
    }
    t->sums[part][0] = total;
    t->sums[part][1] = slope;
}

/* Share a loop; return its two sums.  An entry takes so many steps of a simple loop. */
static PyObject *summed(Held *held, Task *task, Loop *loop, Py_ssize_t steps, Py_ssize_t threads)
{
    Py_ssize_t size = task->x.size;
    int parts = threads_for(steps * size, threads);
    PyThreadState *state = let_go(steps * size);
    share(loop, task, size, parts);
    take_back(state);
    give_back(held);
    double total = 0.0, slope = 0.0;
    for (int k = 0; k < parts; k++) {
        total += task->sums[k][0];
        slope += task->sums[k][1];
    }
    return Py_BuildValue("dd", total, slope);
}

static PyObject *entropic(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "d d d f D n", &t.x, &t.weight, &t.log_ratio, &t.step, &t.out, &threads)) return NULL;
    return summed(&held, &t, entropic_some, 10, threads);
}

static PyObject *entropic_start(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "d d d D n", &t.x, &t.weight, &t.log_ratio, &t.out, &threads)) return NULL;
    return summed(&held, &t, entropic_limit, 5, threads);
}

static PyObject *power(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "d f f D n", &t.x, &t.p, &t.step, &t.out, &threads)) return NULL;
    return summed(&held, &t, power_some, t.p == 3.0 || t.p == 1.5 ? 10 : 100, threads);
}

static PyObject *weighted(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Task t;
    Py_ssize_t threads;
    if (!take(&held, args, count, "d d f n", &t.x, &t.weight, &t.step, &threads)) return NULL;
    return summed(&held, &t, weighted_some, 1, threads);
}

static PyMethodDef functions[] = {
    FUNCTION(entropic), FUNCTION(entropic_start), FUNCTION(power), FUNCTION(weighted), {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_sets", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sets(void) { return PyModule_Create(&module); }
