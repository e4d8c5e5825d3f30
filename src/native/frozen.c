/* The frozen program (see engines/frozen.py): an interior point method over the pairs.

   A has a row for each pair: its advantage for the cost, then for each limit.  x weighs the states.  All loops go state
   by state, since the states' equations are eliminated one by one; what is left has one unknown a limit. */

#include "arrays.h"
#include "share.h"
#include <math.h>

/* Share of the longest step that is taken. */
#define BACK_OFF 0.99
/* The corrector accounts for second-order terms up to this many times its aim: larger ones are far from true. */
#define MOST_BEND 10.0
#define FAR 1e9
/* Steps between two looks whether the program has a solution. */
#define LOOK 4
/* Rows that are added to the Schur complement at once. */
#define ROWS 8

/* What the loops read and fill in. */
typedef struct {
    const double *A, *x;
    const int64_t *first;
    Py_ssize_t n, width, num_states; /* width: n rounded up to a multiple of 8 */
    double *p, *z, *weights; /* weights = p / z */
    double *dp, *dz, *free;  /* free: what p changes by itself */
    double *means, *totals, *sums;
    double *dy;
    double aim, step;
    double *schur, *schurs[MOST_THREADS], *rows[MOST_THREADS], *b[MOST_THREADS];
    double found[MOST_THREADS][3];
    PyObject *agree; /* NULL where all states are here */
    int failed;      /* whether agreeing failed, with an exception */
} Task;

/* Where states live on several ranks, make of each rank's numbers their "total" or the "largest". */
static void agree(Task *t, double *x, Py_ssize_t n, const char *how)
{
    if (t->agree == NULL || t->failed) return;
    PyObject *view = PyMemoryView_FromMemory((char *)x, n * sizeof(double), PyBUF_WRITE);
    PyObject *done = view ? PyObject_CallFunction(t->agree, "Os", view, how) : NULL;
    t->failed = done == NULL;
    Py_XDECREF(done);
    Py_XDECREF(view);
}

/* The product of two rows, in several sums at once. */
FOR_EACH_PROCESSOR static double long_dot(const double *a, const double *b, Py_ssize_t n)
{
    double total = 0.0, four[4] = {0.0, 0.0, 0.0, 0.0}, more[4] = {0.0, 0.0, 0.0, 0.0};
    Py_ssize_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (int i = 0; i < 4; i++) {
            four[i] += a[k + i] * b[k + i];
            more[i] += a[k + 4 + i] * b[k + 4 + i];
        }
    for (; k + 4 <= n; k += 4)
        for (int i = 0; i < 4; i++) four[i] += a[k + i] * b[k + i];
    for (int i = 0; i < 4; i++) four[i] += more[i];
    for (; k < n; k++) total += a[k] * b[k];
    return total + ((four[0] + four[1]) + (four[2] + four[3]));
}

INLINE double dot(const double *a, const double *b, Py_ssize_t n)
{
    if (n >= 16) return long_dot(a, b, n);
    double total = 0.0, four[4] = {0.0, 0.0, 0.0, 0.0};
    Py_ssize_t k = 0;
    for (; k + 4 <= n; k += 4)
        for (int i = 0; i < 4; i++) four[i] += a[k + i] * b[k + i];
    for (; k < n; k++) total += a[k] * b[k];
    return total + ((four[0] + four[1]) + (four[2] + four[3]));
}

/* q = the advantage at cost plus priced limits, less the state's least, greedy = who attains that; the least of all. */
INLINE double priced_by(const double *A, const int64_t *first, Py_ssize_t num_states, const double *lam, Py_ssize_t n,
                        double *q, int64_t *greedy)
{
    double least = INFINITY;
    for (Py_ssize_t s = 0; s < num_states; s++) {
        double low = INFINITY;
        int64_t where = first[s];
        for (int64_t i = first[s]; i < first[s + 1]; i++) {
            const double *row = A + i * (n + 1);
            double total = q[i] = row[0] + dot(row + 1, lam, n);
            where = total < low ? i : where;
            low = smaller(total, low);
        }
        for (int64_t i = first[s]; i < first[s + 1]; i++) q[i] -= low;
        if (greedy) greedy[s] = where;
        least = smaller(least, low);
    }
    return least;
}

/* Few limits are a constant to the compiler. */
FOR_EACH_PROCESSOR static double priced_all(const double *A, const int64_t *first, Py_ssize_t num_states,
                                            const double *lam, Py_ssize_t n, double *q, int64_t *greedy)
{
    switch (n) {
    case 1: return priced_by(A, first, num_states, lam, 1, q, greedy);
    case 2: return priced_by(A, first, num_states, lam, 2, q, greedy);
    case 3: return priced_by(A, first, num_states, lam, 3, q, greedy);
    }
    return priced_by(A, first, num_states, lam, n, q, greedy);
}

/* The central point at the prices of q: p z = mu for each pair, p a distribution in each state.  There z = x q + y with
   the one y > 0 at which the probabilities mu / z add up to one; q is given in z. */
FOR_EACH_PROCESSOR static void centre(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    double mu = t->aim, *p = t->p, *z = t->z;
    for (Py_ssize_t s = start; s < end; s++) {
        double y = mu; /* here the best action alone has probability one, so the root lies above */
        int64_t begin = t->first[s], stop = t->first[s + 1];
        for (int64_t i = begin; i < stop; i++) z[i] *= t->x[s];
        for (int k = 0; k < 50; k++) {
            double total = -1.0, slope = 0.0;
            for (int64_t i = begin; i < stop; i++) {
                double share = mu / (z[i] + y);
                total += share;
                slope += share * share;
            }
            double move = total * mu / slope;
            y += move;
            if (move <= 1e-12 * y) break;
        }
        for (int64_t i = begin; i < stop; i++) {
            z[i] += y;
            p[i] = mu / z[i];
        }
    }
}

/* The step, the predictor's free changes -p, the weights, and the states' part of the gap p'z. */
FOR_EACH_PROCESSOR static void move(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    Task *t = given;
    double *p = t->p, *z = t->z, *dp = t->dp, *dz = t->dz, *free = t->free, *weights = t->weights, gap = 0.0;
    double step = t->step;
#pragma omp simd reduction(+ : gap)
    for (int64_t i = t->first[start]; i < t->first[end]; i++) {
        p[i] += step * dp[i];
        z[i] += step * dz[i];
        free[i] = -p[i];
        weights[i] = p[i] / z[i];
        gap += p[i] * z[i];
    }
    t->found[part][0] = gap;
}

/* sum += the rows' outer products, at least the lower triangle; rows are as wide as the sum, a multiple of 8. */
INLINE void add_rows(double *sum, const double *rows, Py_ssize_t n, Py_ssize_t width)
{
    for (Py_ssize_t k = 0; k < n; k++) {
        const double *r = rows + k;
        double a = r[0], b = r[width], c = r[2 * width], d = r[3 * width];
        double e = r[4 * width], f = r[5 * width], g = r[6 * width], h = r[7 * width];
        for (Py_ssize_t j = 0; j <= k; j += 8) {
            double *out = sum + k * width + j;
            const double *v = rows + j;
#pragma omp simd
            for (int i = 0; i < 8; i++)
                out[i] += a * v[i] + b * v[width + i] + c * v[2 * width + i] + d * v[3 * width + i]
                          + e * v[4 * width + i] + f * v[5 * width + i] + g * v[6 * width + i] + h * v[7 * width + i];
        }
    }
}

/* The Schur complement sum of x^2 (p / z) (a - mean)(a - mean)' and the predictor's b = sum of x p (a - mean), where a
   is a pair's row of limits: the state's own equation takes off the weighted mean. */
FOR_EACH_PROCESSOR static void eliminate(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    Task *t = given;
    Py_ssize_t n = t->n, width = t->width;
    double *sum = t->schurs[part], *rows = t->rows[part], *b = t->b[part];
    int filled = 0;
    memset(sum, 0, n * width * sizeof(double));
    memset(rows, 0, ROWS * width * sizeof(double));
    memset(b, 0, n * sizeof(double));
    for (Py_ssize_t s = start; s < end; s++) {
        double *mean = t->means + s * n, total = 0.0, mass = 0.0;
        for (Py_ssize_t k = 0; k < n; k++) mean[k] = 0.0;
        for (int64_t i = t->first[s]; i < t->first[s + 1]; i++) {
            const double *row = t->A + i * (n + 1) + 1;
            double weight = t->weights[i];
            total += weight;
            mass -= t->p[i];
#pragma omp simd
            for (Py_ssize_t k = 0; k < n; k++) mean[k] += weight * row[k];
        }
        double share = 1.0 / total;
        for (Py_ssize_t k = 0; k < n; k++) mean[k] *= share;
        t->totals[s] = total;
        t->sums[s] = mass;
        for (int64_t i = t->first[s]; i < t->first[s + 1]; i++) {
            const double *row = t->A + i * (n + 1) + 1;
            double *line = rows + filled * width, root = t->x[s] * sqrt(t->weights[i]), change = t->x[s] * t->p[i];
#pragma omp simd
            for (Py_ssize_t k = 0; k < n; k++) {
                double difference = row[k] - mean[k];
                b[k] += change * difference;
                line[k] = root * difference;
            }
            if (++filled == ROWS) {
                add_rows(sum, rows, n, width);
                filled = 0;
            }
        }
    }
    memset(rows + filled * width, 0, (ROWS - filled) * width * sizeof(double));
    add_rows(sum, rows, n, width);
}

/* The corrector's free changes of p, which aim at p z = aim, and its b. */
FOR_EACH_PROCESSOR static void correct(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    Task *t = given;
    Py_ssize_t n = t->n;
    const double *p = t->p, *z = t->z, *dp = t->dp, *dz = t->dz;
    double aim = t->aim, most = MOST_BEND * aim, *free = t->free, *b = t->b[part];
    memset(b, 0, n * sizeof(double));
#pragma omp simd
    for (int64_t i = t->first[start]; i < t->first[end]; i++) {
        double bend = smaller(larger(dp[i] * dz[i], -most), most);
        free[i] = (aim - p[i] * z[i] - bend) / z[i];
    }
    for (Py_ssize_t s = start; s < end; s++) {
        const double *mean = t->means + s * n;
        double total = 0.0;
        for (int64_t i = t->first[s]; i < t->first[s + 1]; i++) {
            const double *row = t->A + i * (n + 1) + 1;
            double change = t->x[s] * free[i];
            total += free[i];
#pragma omp simd
            for (Py_ssize_t k = 0; k < n; k++) b[k] -= change * (row[k] - mean[k]);
        }
        t->sums[s] = total;
    }
}

/* The changes of p and z that belong to the multipliers' change dy; the longest step, and what the gap gains with the
   step and with its square. */
FOR_EACH_PROCESSOR static void directions(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    Task *t = given;
    Py_ssize_t n = t->n;
    const double *p = t->p, *z = t->z, *free = t->free, *weights = t->weights, *dy = t->dy;
    double *dp = t->dp, *dz = t->dz, shrinks = 0.0, linear = 0.0, square = 0.0;
    for (Py_ssize_t s = start; s < end; s++) {
        const double *mean = t->means + s * n;
        double x = t->x[s], own = -t->sums[s] / t->totals[s] - x * dot(mean, dy, n);
        for (int64_t i = t->first[s]; i < t->first[s + 1]; i++) {
            const double *row = t->A + i * (n + 1) + 1;
            dz[i] = -(own + x * dot(row, dy, n));
        }
    }
    /* The longest step is one over the fastest relative decrease. */
#pragma omp simd reduction(+ : linear, square) reduction(max : shrinks)
    for (int64_t i = t->first[start]; i < t->first[end]; i++) {
        dp[i] = free[i] - weights[i] * dz[i];
        shrinks = larger(shrinks, larger(-dz[i] / z[i], -dp[i] / p[i]));
        linear += p[i] * dz[i] + z[i] * dp[i];
        square += dp[i] * dz[i];
    }
    t->found[part][0] = shrinks;
    t->found[part][1] = linear;
    t->found[part][2] = square;
}

/* The lower triangle's Cholesky factor, in its place; whether there is one. */
FOR_EACH_PROCESSOR static int factor(double *matrix, Py_ssize_t n)
{
    for (Py_ssize_t k = 0; k < n; k++) {
        double *line = matrix + k * n;
        for (Py_ssize_t j = 0; j <= k; j++) {
            const double *other = matrix + j * n;
            double total = line[j] - dot(line, other, j);
            if (j < k) line[j] = total / other[j];
            else if (total > 0.0) line[k] = sqrt(total);
            else return 0;
        }
    }
    return 1;
}

/* b = the solution with a Cholesky factor. */
FOR_EACH_PROCESSOR static void solve(const double *lower, double *b, Py_ssize_t n)
{
    for (Py_ssize_t k = 0; k < n; k++) {
        const double *line = lower + k * n;
        b[k] = (b[k] - dot(line, b, k)) / line[k];
    }
    for (Py_ssize_t k = n - 1; k >= 0; k--) {
        const double *line = lower + k * n;
        double found = b[k] /= line[k];
#pragma omp simd
        for (Py_ssize_t j = 0; j < k; j++) b[j] -= found * line[j];
    }
}

/* dr = the change of the rows' slacks; the longest step for slacks and multipliers. */
static double rows_step(const double *r, const double *lam, const uint8_t *bounded, const double *free,
                        const double *dy, double *dr, Py_ssize_t n)
{
    double longest = FAR;
    for (Py_ssize_t k = 0; k < n; k++) {
        dr[k] = bounded[k] ? free[k] + r[k] / lam[k] * dy[k] : 0.0;
        if (dr[k] < 0.0) longest = smaller(longest, -r[k] / dr[k]);
        if (bounded[k] && dy[k] > 0.0) longest = smaller(longest, lam[k] / dy[k]);
    }
    return longest;
}

/* Whether the multipliers prove that no policy meets the limits: at any, the limits' rows sum to more than room. */
static int impossible(Task *t, const double *room, const double *lam, const uint8_t *bounded)
{
    double sums[2] = {0.0, 0.0}; /* of the limits, and of the sizes of all that is added up */
    for (Py_ssize_t k = 0; k < t->n; k++)
        if (bounded[k] && lam[k] < 0.0) return 0;
    for (Py_ssize_t s = 0; s < t->num_states; s++) {
        double low = INFINITY;
        for (int64_t i = t->first[s]; i < t->first[s + 1]; i++) {
            const double *row = t->A + i * (t->n + 1) + 1;
            low = smaller(low, dot(row, lam, t->n));
        }
        sums[0] += t->x[s] * low;
        sums[1] += fabs(t->x[s] * low);
    }
    agree(t, sums, 2, "total");
    for (Py_ssize_t k = 0; k < t->n; k++) {
        sums[0] -= lam[k] * room[k];
        sums[1] += fabs(lam[k] * room[k]);
    }
    return sums[0] > 1e-12 * sums[1];
}

/* What the method knows of the limits. */
typedef struct {
    const double *room, *give;
    const uint8_t *bounded;
    double *lam, *r, *dr, *free, *missing;
} Limits;

/* dy = what is missing, less the slacks' free changes, and the parts' b. */
static void right_side(Task *t, const Limits *l, int parts)
{
    for (int part = 0; part < parts; part++) agree(t, t->b[part], t->n, "total");
    for (Py_ssize_t k = 0; k < t->n; k++) {
        t->dy[k] = l->missing[k] - l->free[k];
        for (int part = 0; part < parts; part++) t->dy[k] += t->b[part][k];
    }
}

/* Mehrotra's predictor-corrector method from the central point at prices lam; lam ends as the multipliers.  Returns the
   steps after which gap and open rows were within the accuracy, -1 if they never were, -2 if there is no solution. */
static int run(Task *t, Limits *l, double mu, double accuracy, Py_ssize_t most_steps, int parts)
{
    Py_ssize_t n = t->n;
    double count = (double)t->first[t->num_states];
    int rigid = 1;
    agree(t, &count, 1, "total");
    priced_all(t->A, t->first, t->num_states, l->lam, n, t->z, NULL);
    t->aim = mu;
    share(centre, t, t->num_states, parts);
    for (Py_ssize_t k = 0; k < n; k++) {
        l->missing[k] = l->room[k];
        for (Py_ssize_t j = 0; j < n; j++) {
            l->missing[k] += l->give[k * n + j] * l->lam[j];
            rigid = rigid && l->give[k * n + j] == 0.0;
        }
        l->free[k] = 0.0;
    }
    for (Py_ssize_t s = 0; s < t->num_states; s++)
        for (int64_t i = t->first[s]; i < t->first[s + 1]; i++)
            for (Py_ssize_t k = 0; k < n; k++) l->free[k] += t->x[s] * t->p[i] * t->A[i * (n + 1) + k + 1];
    agree(t, l->free, n, "total");
    for (Py_ssize_t k = 0; k < n; k++) l->missing[k] -= l->free[k];
    for (Py_ssize_t k = 0; k < n; k++) {
        l->r[k] = l->dr[k] = t->dy[k] = 0.0;
        if (!l->bounded[k]) continue;
        count += 1.0;
        l->r[k] = larger(mu / l->lam[k], fabs(l->missing[k]));
        l->missing[k] -= l->r[k];
    }
    double step = 0.0;
    for (Py_ssize_t done = 0; done < most_steps; done++) {
        double gap = 0.0, worst = 0.0, trace = 0.0;
        t->step = step;
        share(move, t, t->num_states, parts);
        for (int part = 0; part < parts; part++) gap += t->found[part][0];
        agree(t, &gap, 1, "total");
        if (t->failed) return -1;
        for (Py_ssize_t k = 0; k < n; k++) {
            l->r[k] += step * l->dr[k];
            l->lam[k] -= step * t->dy[k];
            l->missing[k] *= 1.0 - step;
            gap += l->r[k] * l->lam[k];
            worst = larger(worst, fabs(l->missing[k]));
            l->free[k] = -l->r[k];
        }
        if (!(gap < FAR)) return -1;
        if (gap <= accuracy && worst <= accuracy) return (int)done;
        if (rigid && done % LOOK == LOOK - 1 && impossible(t, l->room, l->lam, l->bounded)) return -2;
        share(eliminate, t, t->num_states, parts);
        right_side(t, l, parts);
        double *schur = t->schur;
        for (Py_ssize_t k = 0; k < n; k++)
            for (Py_ssize_t j = 0; j <= k; j++) {
                double total = 0.0;
                for (int part = 0; part < parts; part++) total += t->schurs[part][k * t->width + j];
                schur[k * n + j] = total;
            }
        agree(t, schur, n * n, "total");
        for (Py_ssize_t k = 0; k < n; k++) {
            trace += schur[k * n + k];
            for (Py_ssize_t j = 0; j <= k; j++) schur[k * n + j] += l->give[k * n + j];
        }
        for (Py_ssize_t k = 0; k < n; k++)
            schur[k * n + k] += 1e-14 * trace / (double)n + (l->bounded[k] ? l->r[k] / l->lam[k] : 0.0);
        if (!factor(schur, n)) return -1;
        solve(schur, t->dy, n);
        for (int predictor = 1; predictor >= 0; predictor--) {
            share(directions, t, t->num_states, parts);
            step = rows_step(l->r, l->lam, l->bounded, l->free, t->dy, l->dr, n);
            for (int part = 0; part < parts; part++) {
                agree(t, t->found[part], 1, "largest");
                agree(t, t->found[part] + 1, 2, "total");
                if (t->found[part][0] * step > 1.0) step = 1.0 / t->found[part][0];
            }
            if (!predictor) break;
            step = smaller(step, 1.0);
            double ahead = gap;
            for (int part = 0; part < parts; part++) ahead += step * (t->found[part][1] + step * t->found[part][2]);
            for (Py_ssize_t k = 0; k < n; k++)
                if (l->bounded[k])
                    ahead += step * (l->dr[k] * l->lam[k] - l->r[k] * t->dy[k] - step * l->dr[k] * t->dy[k]);
            double share_left = ahead / gap;
            t->aim = share_left * share_left * share_left * gap / count;
            share(correct, t, t->num_states, parts);
            for (Py_ssize_t k = 0; k < n; k++)
                if (l->bounded[k])
                    l->free[k] = (t->aim - l->r[k] * l->lam[k] + l->dr[k] * t->dy[k]) / l->lam[k];
            right_side(t, l, parts);
            solve(schur, t->dy, n);
        }
        step = smaller(1.0, BACK_OFF * step);
    }
    return -1;
}

static PyObject *priced(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Numbers A, lam, q;
    Longs first, greedy;
    if (!take(&held, args, count, "d l d D L", &A, &first, &lam, &q, &greedy)) return NULL;
    PyThreadState *state = let_go(A.size);
    double least = priced_all(A.at, first.at, first.size - 1, lam.at, lam.size, q.at, greedy.at);
    take_back(state);
    give_back(&held);
    return PyFloat_FromDouble(least);
}

static PyObject *interior_point(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Held held = {0};
    Numbers A, x, room, give, lam, p;
    Longs first;
    Flags bounded;
    double mu, accuracy;
    Py_ssize_t most_steps, parts;
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "how ranks agree is missing");
        return NULL;
    }
    PyObject *agree_by = args[--count] == Py_None ? NULL : args[count];
    if (!take(&held, args, count, "d d l d b d D f f n n D", &A, &x, &first, &room, &bounded, &give, &lam, &mu,
              &accuracy, &most_steps, &parts, &p)) return NULL;
    parts = parts < MOST_THREADS ? parts : MOST_THREADS;
    Py_ssize_t n = lam.size, num_pairs = p.size, num_states = x.size;
    Py_ssize_t width = (n + 7) / 8 * 8, each = n * width + ROWS * width + n;
    size_t room_for = 5 * num_pairs + (n + 2) * num_states + (5 + n) * n + parts * each;
    double *memory = PyMem_RawMalloc(room_for * sizeof(double));
    if (memory == NULL) {
        give_back(&held);
        return PyErr_NoMemory();
    }
    double *next = memory;
    Task t = {.A = A.at, .x = x.at, .first = first.at, .n = n, .width = width, .num_states = num_states, .p = p.at,
              .agree = agree_by};
    Limits l = {.room = room.at, .give = give.at, .bounded = bounded.at, .lam = lam.at};
    double **pairs[] = {&t.z, &t.weights, &t.dp, &t.dz, &t.free};
    double **limits[] = {&t.dy, &l.r, &l.dr, &l.free, &l.missing};
    for (int k = 0; k < 5; k++, next += num_pairs) *pairs[k] = next;
    for (int k = 0; k < 5; k++, next += n) *limits[k] = next;
    t.totals = next;
    t.sums = t.totals + num_states;
    t.means = t.sums + num_states;
    t.schur = t.means + n * num_states;
    next = t.schur + n * n;
    for (Py_ssize_t k = 0; k < parts; k++, next += each) {
        t.schurs[k] = next;
        t.rows[k] = next + n * width;
        t.b[k] = t.rows[k] + ROWS * width;
    }
    PyThreadState *state = agree_by ? NULL : let_go(10 * A.size);
    memset(t.dp, 0, num_pairs * sizeof(double));
    memset(t.dz, 0, num_pairs * sizeof(double));
    int steps = run(&t, &l, mu, accuracy, most_steps, (int)parts);
    PyMem_RawFree(memory);
    take_back(state);
    give_back(&held);
    return t.failed ? NULL : PyLong_FromLong(steps);
}

static PyMethodDef functions[] = {FUNCTION(priced), FUNCTION(interior_point), {NULL, NULL, 0, NULL}};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_frozen", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__frozen(void) { return PyModule_Create(&module); }
