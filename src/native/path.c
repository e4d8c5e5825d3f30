/* Path following: Newton's system at a point, and what each set and term adds to it.

   The equations are those of docs/method.md, "Path following", in its letters: d, z, V, l, the slacks s and multipliers
   m of the parts.  X = (d, slacks), Z = (z, multipliers).  With x, y and n the changes of d, V and of the columns'
   unknowns,

       K x + U n - A'y = g,     U'x - B n = e,     A x = r,     K = diag + Xi diag(k) Xi'.

   A Core belongs to one point: its arrays are those of the Python object, which it changes in place. */

#include "arrays.h"
#include "pattern.h"
#include "factor.h"
#include <math.h>
#include <string.h>

typedef Py_ssize_t Size;
typedef struct Core Core;
typedef struct Part Part;

#define MANY_COLUMNS 16 /* from here on BLAS multiplies them */

enum Values { OF_ROWS, OF_STATES, OF_PAIRS };
enum Function { QUADRATIC, ENTROPY_OF_PAIRS, ENTROPY_OF_STATES };

/* What a limit or term is, and what it is like at the point.  Which fields count depends on its kind. */
struct Part {
    void (*linearize)(Core *, Part *);
    /* What the way to s m = aims adds: taken off the force, the columns' and the states' right sides. */
    void (*aim)(Core *, Part *, const double *aims, double full, double *force, double *border, double *pull);
    /* The changes of slacks, multipliers and free unknowns that belong to x, n and the change of the visits. */
    void (*respond)(Core *, Part *, const double *aims, double full, const double *x, const double *n,
                    const double *visits, double *ds, double *dm, double *dfree);
    Size sides, frees, columns, at, at_free, at_column;
    double *s, *m, *free; /* of the point */
    double *force;        /* gradient over pairs */
    double *diagonal;     /* of its Hessian over pairs, or NULL */
    double *per_state;    /* its Hessian has this times 1 1' over the pairs of a state, or NULL */
    double open;          /* by how much its own equations fail to hold */
    double weight;        /* of a term of the objective */
    /* Rows, states or pairs between limits. */
    enum Values of;
    Size count, equals;
    double *E;
    int64_t *states, *row, *equal;
    double *sign, *limit, *goal, *stiff, *scales;
    double *value, *opened, *missed, *stiffness, *net, *pulled, *change;
    /* A smooth convex function. */
    enum Function function;
    double *center, *w, *log_reference, *slope, *gradient, *bend;
    double radius, bound, unit, residual;
    /* A cone. */
    double *Q, *L, *cost, *ratio, *leaning;
    Size axes;
    double first, balance, gone[2];
    /* Powers, and the largest. */
    int64_t *both, *single;
    Size boths, singles;
    double p, y;
    double *a_slope, *s_slope, *A, *B, *T, *ra, *rb, *rt, *fa, *fb, *R;
};

struct Core {
    PyObject_HEAD
    Kept kept;
    Size pairs, states, sides, frees, columns, parts, ground;
    Matrix A;    /* rows of A', a pair each */
    Normal N;
    Part *part;
    double *X, *Z, *V, *free, *weights, *c, *q, *off, *missing;
    double level, lacking, total_weight;
    double negligible; /* visits of a state that nothing notices: its pairs do not keep others from moving */
    uint8_t *noticed;        /* whether a state is visited more often */
    int32_t *state_of, *state_of_free; /* whose pair it is, or whose limit; -1 for what belongs to no state */
    double *primal_of, *dual_of;       /* how far the unknowns of each state move */
    double **U;
    double *block, *small, *bent, *flows, *solved;
    double *packed; /* the columns of U side by side, where they are many; else NULL */
    int *pivot;
    double *diagonal, *W, *curvature, *stiffness, *total, *by_state, *softness, *visits;
    int stiff, capped;
    /* Room for right sides and solutions. */
    double *force, *border, *pull, *r, *x, *n, *net, *y, *g, *mean, *change, *force2, *border2, *pull2, *left;
};

/* ---------------------------------------------------------------------------------------------------- small things */

static double dot(Size size, const double *a, const double *b)
{
    double total = 0.0;
#pragma omp simd reduction(+ : total)
    for (Size i = 0; i < size; i++) total += a[i] * b[i];
    return total;
}

static void add(Size size, double share, const double *a, double *out)
{
#pragma omp simd
    for (Size i = 0; i < size; i++) out[i] += share * a[i];
}

static void clear(Size size, double *out) { memset(out, 0, size * sizeof(double)); }

static double larger(double a, double b) { return b > a || isnan(b) ? b : a; }

static void per_state(const Core *core, const double *x, double *out)
{
    const int64_t *first = core->A.first;
    for (Size s = 0; s < core->states; s++) {
        double total = 0.0;
        for (int64_t i = first[s]; i < first[s + 1]; i++) total += x[i];
        out[s] = total;
    }
}

/* A x */
static void flow(const Core *core, const double *x, double *out)
{
    const Matrix *A = &core->A;
    clear(core->states, out);
    for (Size i = 0; i < core->pairs; i++)
        for (int32_t k = A->starts[i]; k < A->starts[i + 1]; k++) out[A->columns[k]] += A->values[k] * x[i];
}

/* out + share A'V */
static void add_back(const Core *core, double share, const double *V, double *out)
{
    const Matrix *A = &core->A;
    for (Size i = 0; i < core->pairs; i++) {
        double total = 0.0;
        for (int32_t k = A->starts[i]; k < A->starts[i + 1]; k++) total += A->values[k] * V[A->columns[k]];
        out[i] += share * total;
    }
}

/* ------------------------------------------------------------------------------------ rows, states, pairs in limits */

static void sides_linearize(Core *core, Part *p)
{
    const double *d = core->X;
    for (Size i = 0; i < p->count; i++) {
        p->value[i] = p->of == OF_ROWS     ? dot(core->pairs, p->E + i * core->pairs, d)
                      : p->of == OF_STATES ? core->visits[p->states[i]]
                                           : d[i];
        p->stiffness[i] = p->net[i] = 0.0;
    }
    for (Size k = 0; k < p->sides; k++) {
        int64_t i = p->row[k];
        p->opened[k] = p->sign[k] * (p->limit[k] - p->value[i]) - p->s[k];
        p->stiffness[i] += p->m[k] / p->s[k];
        p->net[i] += p->sign[k] * p->m[k];
    }
    for (Size k = 0; k < p->equals; k++) {
        int64_t i = p->equal[k];
        p->missed[k] = p->goal[k] - p->value[i];
        p->stiffness[i] = p->stiff[k];
        p->net[i] = p->free[k];
    }
    /* Limits that are exceeded, relative to a size, and products that are off because slacks are not what is left: what
       is left of a limit that does not matter need not be known. */
    p->open = 0.0;
    for (Size k = 0; k < p->sides; k++) {
        p->open = larger(p->open, -(p->opened[k] + p->s[k]) / p->scales[p->row[k]]);
        p->open = larger(p->open, fabs(p->opened[k]) * p->m[k]);
    }
    for (Size k = 0; k < p->equals; k++) p->open = larger(p->open, fabs(p->missed[k]) / p->scales[p->equal[k]]);
    if (p->of == OF_ROWS) {
        clear(core->pairs, p->force);
        for (Size i = 0; i < p->count; i++) {
            add(core->pairs, p->net[i], p->E + i * core->pairs, p->force);
            Size k = p->at_column + i;
            core->block[k * core->columns + k] = 1 / p->stiffness[i];
        }
    } else if (p->of == OF_STATES) {
        clear(core->pairs, p->force);
        for (Size i = 0; i < p->count; i++)
            for (int64_t j = core->A.first[p->states[i]]; j < core->A.first[p->states[i] + 1]; j++)
                p->force[j] = p->net[i];
    } else
        memcpy(p->force, p->net, core->pairs * sizeof(double));
}

static void sides_aim(Core *core, Part *p, const double *aims, double full, double *force, double *border, double *pull)
{
    /* Multipliers change by stiffness times the change of the row, and by this. */
    clear(p->count, p->pulled);
    for (Size k = 0; k < p->sides; k++)
        p->pulled[p->row[k]] += p->sign[k] * (aims[k] - full * p->m[k] * (p->s[k] + p->opened[k])) / p->s[k];
    for (Size k = 0; k < p->equals; k++) p->pulled[p->equal[k]] = -full * p->stiff[k] * p->missed[k];
    for (Size i = 0; i < p->count; i++) {
        if (p->of == OF_ROWS)
            border[i] = -p->pulled[i] / p->stiffness[i];
        else if (p->of == OF_STATES)
            pull[p->states[i]] += p->pulled[i];
        else
            force[i] -= p->pulled[i];
    }
}

static void sides_respond(Core *core, Part *p, const double *aims, double full, const double *x, const double *n,
                          const double *visits, double *ds, double *dm, double *dfree)
{
    const double *change = x;
    if (p->of != OF_PAIRS) {
        for (Size i = 0; i < p->count; i++) {
            if (p->of == OF_STATES)
                p->change[i] = visits[p->states[i]];
            else /* stiff rows change by what follows from the multipliers: adding up x would lose it to rounding */
                p->change[i] = p->stiffness[i] > 1 ? (n[i] - p->pulled[i]) / p->stiffness[i]
                                                   : dot(core->pairs, p->E + i * core->pairs, x);
        }
        change = p->change;
    }
    for (Size k = 0; k < p->sides; k++) {
        ds[k] = full * p->opened[k] - p->sign[k] * change[p->row[k]];
        dm[k] = (aims[k] - p->m[k] * (full * p->s[k] + ds[k])) / p->s[k];
    }
    for (Size k = 0; k < p->equals; k++) {
        int64_t i = p->equal[k];
        dfree[k] = p->of == OF_ROWS ? n[i] : p->stiffness[i] * change[i] + p->pulled[i];
    }
}

/* ------------------------------------------------------------------------------------------------ smooth functions */

/* F(d); fills in its gradient and the diagonal, or the number a state, of its Hessian. */
static double evaluate(Core *core, Part *p)
{
    const double *d = core->X;
    double value = 0.0;
    if (p->function == QUADRATIC) { /* (sum w (d - center)^2 / radius^2 - 1) / 2 */
        double scale = 1 / p->radius;
        for (Size i = 0; i < core->pairs; i++) {
            double x = (d[i] - p->center[i]) * scale, wx = p->w[i] * x;
            value += wx * x;
            p->gradient[i] = wx * scale;
            p->bend[i] = p->w[i] * scale * scale;
        }
        return 0.5 * (value - 1.0);
    }
    /* (sum x log(x / reference) - bound) / unit over pairs or over the visits of states */
    Size size = p->function == ENTROPY_OF_PAIRS ? core->pairs : core->states;
    const double *x = p->function == ENTROPY_OF_PAIRS ? d : core->visits;
    for (Size i = 0; i < size; i++) {
        double ratio = log(x[i]) - p->log_reference[i];
        value += x[i] * ratio;
        p->slope[i] = (ratio + 1.0) / p->unit;
        p->bend[i] = 1 / (p->unit * x[i]);
    }
    if (p->function == ENTROPY_OF_PAIRS)
        memcpy(p->gradient, p->slope, size * sizeof(double));
    else
        for (Size s = 0; s < core->states; s++)
            for (int64_t i = core->A.first[s]; i < core->A.first[s + 1]; i++) p->gradient[i] = p->slope[s];
    return (value - p->bound) / p->unit;
}

static double bent(Core *core, Part *p, double weight)
{
    double value = evaluate(core, p);
    double *hessian = p->diagonal ? p->diagonal : p->per_state;
    Size size = p->diagonal ? core->pairs : core->states;
    for (Size i = 0; i < core->pairs; i++) p->force[i] = weight * p->gradient[i];
    for (Size i = 0; i < size; i++) hessian[i] = weight * p->bend[i];
    return value;
}

/* F(d) <= 0 */
static void curve_linearize(Core *core, Part *p)
{
    double value = bent(core, p, p->m[0]);
    p->residual = -value - p->s[0];
    core->block[p->at_column * (core->columns + 1)] = p->s[0] / p->m[0];
    p->open = larger(larger(value, fabs(p->residual) * p->m[0]), 0.0);
}

static void curve_aim(Core *core, Part *p, const double *aims, double full, double *force, double *border, double *pull)
{
    border[0] = full * p->residual - (aims[0] - full * p->s[0] * p->m[0]) / p->m[0];
}

static void curve_respond(Core *core, Part *p, const double *aims, double full, const double *x, const double *n,
                          const double *visits, double *ds, double *dm, double *dfree)
{
    if (p->m[0] > p->s[0]) /* as with stiff rows */
        ds[0] = (aims[0] - full * p->s[0] * p->m[0] - p->s[0] * n[0]) / p->m[0];
    else
        ds[0] = full * p->residual - dot(core->pairs, p->gradient, x);
    dm[0] = n[0];
}

/* weight F(d) in the objective */
static void smooth_linearize(Core *core, Part *p) { bent(core, p, p->weight); }

static void no_aim(Core *core, Part *p, const double *aims, double full, double *force, double *border, double *pull) {}

static void no_response(Core *core, Part *p, const double *aims, double full, const double *x, const double *n,
                        const double *visits, double *ds, double *dm, double *dfree) {}

/* ------------------------------------------------------------------------------------------------------------ cones */

/* |L'x| <= t with x = d - center and Q = L L', as (x'Qx / t - t) / (2 first) <= 0; t is the first slack.  Either
   cost'd + t / unit <= bound is a limit, or weight t a term of the objective. */
static void cone_linearize(Core *core, Part *p)
{
    Size n = core->pairs, K = core->columns, at = p->at_column, k = p->sides;
    const double *d = core->X;
    double t = p->s[0], y = p->m[1], square = 0.0, scale = 2 * p->first;
    double *x = p->ratio, *Qx = p->gradient;
    for (Size i = 0; i < n; i++) x[i] = d[i] - p->center[i];
    if (p->axes) {
        clear(n, Qx);
        for (Size a = 0; a < p->axes; a++) add(n, dot(n, p->L + a * n, x), p->L + a * n, Qx);
    } else
        for (Size i = 0; i < n; i++) Qx[i] = p->Q[i] * x[i];
    square = dot(n, x, Qx);
    square = square > 0 ? square : 0.0;
    double value = (square / t - t) / scale, slope = -(square / (t * t) + 1) / scale;
    double curve = 2 * square / (t * t * t) / scale;
    for (Size i = 0; i < n; i++) {
        Qx[i] /= t * p->first;
        x[i] /= t * p->first;
        p->leaning[i] = -y * Qx[i] / t;
        p->force[i] = y * Qx[i];
    }
    double *block = core->block + at * K + at;
    block[0] = -(y * curve + p->m[0] / t);
    block[1] = block[K] = -slope;
    block[K + 1] = p->s[1] / y;
    p->gone[0] = -value - p->s[1];
    double price = p->weight;
    if (p->cost) {
        p->gone[1] = p->bound - dot(n, p->cost, d) - t / p->unit - p->s[2];
        block[2] = block[2 * K] = -1 / p->unit;
        block[2 * K + 2] = p->s[2] / p->m[2];
        add(n, p->m[2], p->cost, p->force);
        price = p->m[2] / p->unit;
    }
    p->balance = y * slope + price;
    p->open = 0.0;
    for (Size j = 1; j < k; j++) {
        p->open = larger(p->open, -(p->gone[j - 1] + p->s[j]));
        p->open = larger(p->open, fabs(p->gone[j - 1]) * p->m[j]);
    }
    for (Size a = 0; a < p->axes; a++) block[(k + a) * (K + 1)] = t * p->first / y;
    if (p->diagonal)
        for (Size i = 0; i < n; i++) p->diagonal[i] = y * p->Q[i] / (t * p->first);
}

static void cone_aim(Core *core, Part *p, const double *aims, double full, double *force, double *border, double *pull)
{
    clear(p->columns, border);
    border[0] = aims[0] / p->s[0] - full * p->balance;
    for (Size j = 1; j < p->sides; j++)
        border[j] = full * p->gone[j - 1] - (aims[j] - full * p->s[j] * p->m[j]) / p->m[j];
}

static void cone_respond(Core *core, Part *p, const double *aims, double full, const double *x, const double *n,
                         const double *visits, double *ds, double *dm, double *dfree)
{
    const double *block = core->block + p->at_column * (core->columns + 1), *s = p->s, *m = p->m;
    ds[0] = n[0];
    dm[0] = (aims[0] - full * s[0] * m[0] - m[0] * n[0]) / s[0];
    for (Size j = 1; j < p->sides; j++) {
        dm[j] = n[j];
        if (m[j] > s[j])
            ds[j] = (aims[j] - full * s[j] * m[j] - s[j] * n[j]) / m[j];
        else
            ds[j] = full * p->gone[j - 1] - dot(core->pairs, core->U[p->at_column + j], x)
                    + block[j * core->columns] * n[0];
    }
}

/* ------------------------------------------------------------------------------------------------------ p-norms */

/* h(t) = (t / radius)^p / p and its derivatives. */
static void power_of(const Part *p, double t, double *value, double *slope, double *curve)
{
    double u = t / p->radius;
    if (p->p == 1) {
        *value = u, *slope = 1 / p->radius, *curve = 0.0;
        return;
    }
    double low = pow(u, p->p - 2);
    *value = low * u * u / p->p;
    *slope = low * u / p->radius;
    *curve = (p->p - 1) * low / (p->radius * p->radius);
}

/* sum |x|^p <= radius^p with x = d - center, or weight sum |x| in the objective.  A t for each pair with a positive
   center has a = t - x >= 0 and b = t + x >= 0, and is eliminated pair by pair; elsewhere x is not negative. */
static void powers_linearize(Core *core, Part *p)
{
    Size n = core->pairs, k = p->boths;
    const double *d = core->X, *a = p->s, *b = p->s + k, *alpha = p->m, *beta = p->m + k, *t = p->free;
    int limited = isnan(p->weight);
    double total = 0.0, corner = 0.0, away = 0.0, sum_t = 0.0, value, slope, curve;
    p->y = limited ? p->m[2 * k] : p->weight;
    for (Size j = 0; j < k; j++) {
        int64_t i = p->both[j];
        double x = d[i] - p->center[i];
        power_of(p, t[j], &value, &slope, &curve);
        double A = alpha[j] / a[j], B = beta[j] / b[j], T = p->y * curve + A + B;
        p->A[j] = A, p->B[j] = B, p->T[j] = T, p->a_slope[j] = slope;
        p->ra[j] = t[j] - x - a[j], p->rb[j] = t[j] + x - b[j];
        p->rt[j] = p->y * slope - alpha[j] - beta[j];
        p->force[i] = alpha[j] - beta[j];
        p->diagonal[i] = (p->y * curve * (A + B) + 4 * A * B) / T;
        p->gradient[i] = (A - B) * slope / T;
        total += value;
        corner += slope * slope / T;
        away += fabs(p->ra[j]) + fabs(p->rb[j]);
        sum_t += t[j];
    }
    for (Size j = 0; j < p->singles; j++) {
        int64_t i = p->single[j];
        power_of(p, d[i] - p->center[i], &value, &slope, &curve);
        p->s_slope[j] = slope;
        p->force[i] = p->y * slope;
        p->diagonal[i] = p->y * curve;
        p->gradient[i] = slope;
        total += value;
    }
    for (Size i = 0; i < n; i++) sum_t += d[i];
    p->open = away / sum_t; /* summed up: where d is its center but for rounding, t is rounding, too */
    if (limited) {
        double s = p->s[2 * k];
        p->residual = 1 / p->p - total - s;
        core->block[p->at_column * (core->columns + 1)] = s / p->y + corner;
        p->open = larger(larger(p->open, -p->residual - s), fabs(p->residual) * p->y);
    }
}

static void powers_aims(Part *p, const double *aims, double full)
{
    Size k = p->boths;
    const double *a = p->s, *b = p->s + k, *alpha = p->m, *beta = p->m + k;
    for (Size j = 0; j < k; j++) {
        p->fa[j] = (aims[j] - full * alpha[j] * a[j]) / a[j];
        p->fb[j] = (aims[k + j] - full * beta[j] * b[j]) / b[j];
        p->R[j] = full * (-p->rt[j] - p->A[j] * p->ra[j] - p->B[j] * p->rb[j]) + p->fa[j] + p->fb[j];
    }
}

static void powers_aim(Core *core, Part *p, const double *aims, double full, double *force, double *border, double *pull)
{
    double moved = 0.0;
    powers_aims(p, aims, full);
    for (Size j = 0; j < p->boths; j++) {
        double A = p->A[j], B = p->B[j];
        force[p->both[j]] -= (B - A) * p->R[j] / p->T[j] + p->fa[j] - p->fb[j] + full * (B * p->rb[j] - A * p->ra[j]);
        moved += p->a_slope[j] * p->R[j] / p->T[j];
    }
    if (isnan(p->weight)) {
        double s = p->s[2 * p->boths];
        border[0] = full * p->residual - (aims[2 * p->boths] - full * s * p->y) / p->y - moved;
    }
}

static void powers_respond(Core *core, Part *p, const double *aims, double full, const double *x, const double *n,
                           const double *visits, double *ds, double *dm, double *dt)
{
    Size k = p->boths;
    double dy = isnan(p->weight) ? n[0] : 0.0, along = 0.0;
    for (Size j = 0; j < k; j++) {
        double xi = x[p->both[j]];
        dt[j] = (p->R[j] - p->a_slope[j] * dy - (p->B[j] - p->A[j]) * xi) / p->T[j];
        ds[j] = dt[j] - xi + full * p->ra[j];
        ds[k + j] = dt[j] + xi + full * p->rb[j];
        dm[j] = p->fa[j] - p->A[j] * ds[j];
        dm[k + j] = p->fb[j] - p->B[j] * ds[k + j];
        along += p->a_slope[j] * dt[j];
    }
    if (!isnan(p->weight)) return;
    double s = p->s[2 * k];
    for (Size j = 0; j < p->singles; j++) along += p->s_slope[j] * x[p->single[j]];
    ds[2 * k] = p->y > s ? (aims[2 * k] - full * s * p->y - s * dy) / p->y /* as with stiff rows */
                         : full * p->residual - along;
    dm[2 * k] = dy;
}

/* weight max |d - center| in the objective: a = t - x >= 0 and b = t + x >= 0 with one t. */
static void largest_linearize(Core *core, Part *p)
{
    Size n = core->pairs;
    double t = p->free[0], sum_stiff = 0.0, sum_m = 0.0, most = 0.0;
    for (Size i = 0; i < n; i++) {
        double x = core->X[i] - p->center[i];
        double A = p->m[i] / p->s[i], B = p->m[n + i] / p->s[n + i];
        p->opened[i] = t - x - p->s[i];
        p->opened[n + i] = t + x - p->s[n + i];
        p->force[i] = p->m[i] - p->m[n + i];
        p->diagonal[i] = A + B;
        p->gradient[i] = B - A;
        sum_stiff += A + B;
        sum_m += p->m[i] + p->m[n + i];
        most = larger(larger(most, fabs(p->opened[i])), fabs(p->opened[n + i]));
    }
    core->block[p->at_column * (core->columns + 1)] = -sum_stiff;
    p->residual = p->weight - sum_m;
    p->open = most / t;
}

static void largest_aim(Core *core, Part *p, const double *aims, double full, double *force, double *border, double *pull)
{
    Size n = core->pairs;
    double total = 0.0;
    for (Size i = 0; i < 2 * n; i++) {
        double f = (aims[i] - full * p->m[i] * (p->s[i] + p->opened[i])) / p->s[i];
        force[i % n] -= i < n ? f : -f;
        total += f;
    }
    border[0] = -full * p->residual + total;
}

static void largest_respond(Core *core, Part *p, const double *aims, double full, const double *x, const double *n,
                            const double *visits, double *ds, double *dm, double *dfree)
{
    Size size = core->pairs;
    for (Size i = 0; i < 2 * size; i++) {
        ds[i] = full * p->opened[i] + (i < size ? n[0] - x[i] : n[0] + x[i - size]);
        dm[i] = (aims[i] - p->m[i] * (full * p->s[i] + ds[i])) / p->s[i];
    }
    dfree[0] = n[0];
}

/* ----------------------------------------------------------------------------------------------------- the system */

/* x = K^-1 g, and the multipliers of the states' limits, which pull changes by themselves. */
static void apply(Core *core, const double *g, const double *pull, double *x, double *net)
{
    const double *W = core->W;
    if (!core->stiff) {
        for (Size i = 0; i < core->pairs; i++) x[i] = W[i] * g[i];
        return;
    }
    for (Size s = 0; s < core->states; s++) {
        int64_t from = core->A.first[s], to = core->A.first[s + 1];
        double mean = 0.0;
        for (int64_t i = from; i < to; i++) mean += W[i] * g[i];
        mean /= core->by_state[s];
        /* The pairs' mean moves by what is left of the pull once states give way. */
        double rest = (mean - pull[s]) * core->softness[s];
        for (int64_t i = from; i < to; i++) x[i] = W[i] * ((g[i] - mean) + rest);
        if (net)
            net[s] = (core->total[s] * core->by_state[s] * mean + pull[s]) * core->softness[s]
                     - core->curvature[s] * core->by_state[s] * rest;
    }
}

/* Solve by the factor: first for V alone, then for the columns' unknowns.  Into core->x, n, net and y. */
static void solve_once(Core *core, const double *force, const double *border, const double *missing, const double *pull)
{
    Size n = core->pairs, S = core->states, K = core->columns;
    apply(core, force, pull, core->x, NULL);
    flow(core, core->x, core->r);
    for (Size s = 0; s < S; s++) core->y[s] = missing[s] - core->r[s];
    normal_solve(&core->N, core->y, 1);
    for (Size k = 0; k < K; k++)
        core->n[k] = dot(n, core->U[k], core->x) + dot(S, core->flows + k * S, core->y) - border[k];
    small_solve(K, core->small, core->pivot, core->n);
    memcpy(core->g, force, n * sizeof(double));
    for (Size k = 0; k < K; k++) {
        add(S, core->n[k], core->solved + k * S, core->y);
        add(n, -core->n[k], core->U[k], core->g);
    }
    add_back(core, 1.0, core->y, core->g);
    apply(core, core->g, pull, core->x, core->net);
}

/* The columns' own system once all else is eliminated: block + U'K^-1 U - flows' N^-1 flows. */
static void add_bordered(Core *core)
{
    Size n = core->pairs, S = core->states, K = core->columns;
    memcpy(core->small, core->block, K * K * sizeof(double));
    if (core->packed) {
        for (Size k = 0; k < K; k++) memcpy(core->packed + k * n, core->U[k], n * sizeof(double));
        int columns = (int)K, pairs = (int)n, states = (int)S;
        double one = 1.0, less = -1.0;
        dgemm("T", "N", &columns, &columns, &pairs, &one, core->packed, &pairs, core->bent, &pairs, &one, core->small, &columns);
        dgemm("T", "N", &columns, &columns, &states, &less, core->flows, &states, core->solved, &states, &one, core->small,
              &columns);
        return;
    }
    for (Size j = 0; j < K; j++)
        for (Size k = 0; k <= j; k++) {
            double entry = dot(n, core->U[j], core->bent + k * n) - dot(S, core->flows + j * S, core->solved + k * S);
            core->small[j * K + k] += entry;
            if (k < j) core->small[k * K + j] += entry;
        }
}

/* The right sides of the equations. */
static void right_sides(Core *core, const double *aims, double full, double *force, double *border, double *pull)
{
    Size n = core->pairs;
    for (Size i = 0; i < n; i++) force[i] = aims[i] / core->X[i] - full * (core->Z[i] + core->off[i]);
    border[0] = full * core->lacking;
    clear(core->states, pull);
    for (Size k = 0; k < core->parts; k++) {
        Part *p = &core->part[k];
        p->aim(core, p, aims + p->at, full, force, border + p->at_column, pull);
    }
}

/* The changes that belong to the solution in core: a move is (aims, X, Z, V, free, n, net). */
static void fill_move(Core *core, double full, const double *pull, double *move)
{
    Size n = core->pairs, S = core->states, N = core->sides;
    const double *aims = move;
    double *dX = move + N, *dZ = dX + N, *dV = dZ + N, *dfree = dV + S, *dn = dfree + core->frees, *net = dn + core->columns;
    for (Size i = 0; i < n; i++) {
        dX[i] = core->x[i];
        dZ[i] = (aims[i] - core->Z[i] * (full * core->X[i] + core->x[i])) / core->X[i];
    }
    memcpy(dV, core->y, S * sizeof(double));
    memcpy(dn, core->n, core->columns * sizeof(double));
    memcpy(net, core->net, S * sizeof(double));
    if (core->capped) {
        /* Where limits are stiff, from the multipliers: adding up x would lose it to rounding. */
        per_state(core, core->x, core->change);
        for (Size s = 0; s < S; s++)
            if (core->stiffness[s] * core->by_state[s] > 1)
                core->change[s] = (core->net[s] - pull[s]) / core->stiffness[s];
    }
    for (Size k = 0; k < core->parts; k++) {
        Part *p = &core->part[k];
        p->respond(core, p, aims + p->at, full, core->x, core->n + p->at_column, core->change, dX + p->at, dZ + p->at,
                   dfree + p->at_free);
    }
}

/* ------------------------------------------------------------------------------------------------------- methods */

static Size move_size(const Core *core)
{
    return 3 * core->sides + 2 * core->states + core->frees + core->columns;
}

/* Take a move's entries; NULL and an exception where it is none. */
static double *read_move(Core *core, Held *held, PyObject *object)
{
    Size size;
    double *move = hold(held, object, 'D', &size);
    if (move && size != move_size(core)) {
        PyErr_Format(PyExc_ValueError, "a move has %zd entries, not %zd", move_size(core), size);
        return NULL;
    }
    return move;
}

static PyObject *core_linearize(Core *core, PyObject *const *args, Size count)
{
    Held held = {0};
    if (!take(&held, args, count, "f", &core->level)) return NULL;
    Size n = core->pairs, S = core->states;
    double open = 0.0, gap, left = 0.0, off = 0.0, total = 0.0;
    Py_BEGIN_ALLOW_THREADS;
    gap = dot(core->sides, core->X, core->Z);
    clear(core->columns * core->columns, core->block);
    per_state(core, core->X, core->visits);
    for (Size s = 0; s < S; s++) core->noticed[s] = !(core->visits[s] < core->negligible);
    for (Size i = 0; i < n; i++) core->off[i] = core->c[i] - core->level - core->Z[i];
    add_back(core, -1.0, core->V, core->off);
    for (Size k = 0; k < core->parts; k++) {
        Part *p = &core->part[k];
        p->linearize(core, p);
        add(n, 1.0, p->force, core->off);
        open = larger(open, p->open);
    }
    flow(core, core->X, core->missing);
    for (Size s = 0; s < S; s++) {
        core->missing[s] = core->q[s] - core->missing[s];
        left += fabs(core->missing[s]);
        total += core->visits[s];
    }
    core->lacking = 1 - total;
    for (Size i = 0; i < n; i++) off += fabs(core->off[i]) * core->X[i];
    open = larger(larger(larger(open, fabs(core->lacking)), left), off);
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("dddd", gap, gap / core->total_weight, open, core->lacking);
}

static PyObject *core_factor(Core *core, PyObject *const *args, Size count)
{
    Held held = {0};
    double grounded;
    if (!take(&held, args, count, "f", &grounded)) return NULL;
    Size n = core->pairs, S = core->states, K = core->columns;
    int done = 0;
    Py_BEGIN_ALLOW_THREADS;
    for (Size i = 0; i < n; i++) core->diagonal[i] = core->Z[i] / core->X[i];
    clear(S, core->curvature);
    clear(S, core->stiffness);
    for (Size k = 0; k < core->parts; k++) {
        Part *p = &core->part[k];
        if (p->diagonal) add(n, 1.0, p->diagonal, core->diagonal);
        if (p->per_state) add(S, 1.0, p->per_state, core->curvature);
        if (p->of == OF_STATES)
            for (Size i = 0; i < p->count; i++) core->stiffness[p->states[i]] += p->stiffness[i];
    }
    double sum = 0.0;
    for (Size i = 0; i < n; i++) sum += core->W[i] = 1 / core->diagonal[i];
    per_state(core, core->W, core->by_state);
    for (Size s = 0; s < S; s++) {
        core->total[s] = core->curvature[s] + core->stiffness[s];
        core->softness[s] = 1 / (1 + core->total[s] * core->by_state[s]);
    }
    done = normal_factor(&core->N, &core->A, core->W, core->softness, core->ground, grounded * sum);
    if (done) {
        clear(S, core->pull2);
        for (Size k = 0; k < K; k++) {
            apply(core, core->U[k], core->pull2, core->bent + k * n, NULL);
            flow(core, core->bent + k * n, core->flows + k * S);
        }
        memcpy(core->solved, core->flows, K * S * sizeof(double));
        normal_solve(&core->N, core->solved, K);
        add_bordered(core);
        done = small_factor(K, core->small, core->pivot);
    }
    Py_END_ALLOW_THREADS;
    return PyBool_FromLong(done);
}

static PyObject *core_move(Core *core, PyObject *const *args, Size count)
{
    /* Fill in the move towards products X Z = aims, in full, or with full zero as a correction. */
    Held held = {0};
    double full;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "move(move, full) takes two arguments");
    full = PyFloat_AsDouble(args[1]);
    double *move = read_move(core, &held, args[0]);
    if (!move || PyErr_Occurred()) {
        give_back(&held);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    right_sides(core, move, full, core->force, core->border, core->pull);
    for (Size s = 0; s < core->states; s++) core->change[s] = full * core->missing[s];
    solve_once(core, core->force, core->border, core->change, core->pull);
    fill_move(core, full, core->pull, move);
    Py_END_ALLOW_THREADS;
    give_back(&held);
    Py_RETURN_NONE;
}

static PyObject *core_refine(Core *core, PyObject *const *args, Size count)
{
    /* Solve once more for what rounding left of a move. */
    Held held = {0};
    double full;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "refine(move, full) takes two arguments");
    full = PyFloat_AsDouble(args[1]);
    double *move = read_move(core, &held, args[0]);
    if (!move || PyErr_Occurred()) {
        give_back(&held);
        return NULL;
    }
    Size n = core->pairs, S = core->states, K = core->columns, N = core->sides;
    Py_BEGIN_ALLOW_THREADS;
    const double *x = move + N, *V = move + 3 * N, *y = V + S + core->frees, *net = y + K;
    double *rest = core->force2, *left = core->left, *border = core->border2, *pull = core->pull2;
    right_sides(core, move, full, core->force, core->border, core->pull);
    for (Size i = 0; i < n; i++) rest[i] = core->force[i] - core->diagonal[i] * x[i];
    add_back(core, 1.0, V, rest);
    flow(core, x, left);
    for (Size s = 0; s < S; s++) left[s] = full * core->missing[s] - left[s];
    left[core->ground] = 0.0;
    if (core->stiff) {
        per_state(core, x, core->change);
        for (Size s = 0; s < S; s++) {
            double u = core->change[s], given = core->curvature[s] * u + net[s];
            for (int64_t i = core->A.first[s]; i < core->A.first[s + 1]; i++) rest[i] -= given;
            /* The states' own equations: net = stiffness u + pull. */
            pull[s] = (core->stiffness[s] * u - net[s]) + core->pull[s];
        }
    }
    for (Size k = 0; k < K; k++) {
        add(n, -y[k], core->U[k], rest);
        border[k] = core->border[k] - dot(n, core->U[k], x) + dot(K, core->block + k * K, y);
    }
    solve_once(core, rest, border, left, pull);
    add(n, 1.0, x, core->x);
    add(S, 1.0, V, core->y);
    add(K, 1.0, y, core->n);
    if (core->stiff) add(S, 1.0, net, core->net);
    fill_move(core, full, core->pull, move);
    Py_END_ALLOW_THREADS;
    give_back(&held);
    Py_RETURN_NONE;
}

#define LEAST 0.9 /* share of d and z by which pairs of negligible states fall at the most */

static double longest(Core *core, const double *x, const double *change, const double *other, double share)
{
    double least = 0.0;
    for (Size i = 0; i < core->sides; i++) {
        double ratio = (change[i] + (other ? share * other[i] : 0.0)) / x[i];
        if (!(ratio >= least) && (core->state_of[i] < 0 || core->noticed[core->state_of[i]])) least = ratio;
    }
    return least == 0.0 ? INFINITY : -1.0 / least;
}

/* Take a step of a length; where a state is negligible, as much of it as leaves its unknowns positive. */
static void advance(Core *core, double length, const double *change, double *x, double *length_of)
{
    for (Size s = 0; s < core->states; s++) length_of[s] = length;
    for (Size i = 0; i < core->sides; i++) {
        int32_t s = core->state_of[i];
        if (s >= 0 && !core->noticed[s] && length_of[s] * change[i] < -LEAST * x[i]) length_of[s] = -LEAST * x[i] / change[i];
    }
    for (Size i = 0; i < core->sides; i++)
        x[i] += (core->state_of[i] < 0 ? length : length_of[core->state_of[i]]) * change[i];
}

static PyObject *core_lengths(Core *core, PyObject *const *args, Size count)
{
    /* The longest steps along a move, with a share of another, that leave X, and Z, positive. */
    Held held = {0};
    if (count != 1 && count != 3) return PyErr_Format(PyExc_TypeError, "lengths(move[, other, share])");
    double share = count == 3 ? PyFloat_AsDouble(args[2]) : 0.0, primal = 0.0, dual = 0.0;
    double *move = read_move(core, &held, args[0]), *other = NULL;
    if (move && count == 3) other = read_move(core, &held, args[1]);
    if (!PyErr_Occurred()) {
        Size N = core->sides;
        primal = longest(core, core->X, move + N, other ? other + N : NULL, share);
        dual = longest(core, core->Z, move + 2 * N, other ? other + 2 * N : NULL, share);
    }
    give_back(&held);
    return PyErr_Occurred() ? NULL : Py_BuildValue("dd", primal, dual);
}

static PyObject *core_advance(Core *core, PyObject *const *args, Size count)
{
    /* Take a step; return the change of l. */
    Held held = {0};
    if (count != 3) return PyErr_Format(PyExc_TypeError, "advance(move, primal, dual)");
    double primal = PyFloat_AsDouble(args[1]), dual = PyFloat_AsDouble(args[2]), change = 0.0;
    double *move = read_move(core, &held, args[0]);
    if (!PyErr_Occurred()) {
        Size N = core->sides, S = core->states;
        const double *of_free = move + 3 * N + S;
        advance(core, primal, move + N, core->X, core->primal_of);
        advance(core, dual, move + 2 * N, core->Z, core->dual_of);
        add(S, dual, move + 3 * N, core->V);
        for (Size k = 0; k < core->frees; k++)
            core->free[k] += (core->state_of_free[k] < 0 ? dual : core->primal_of[core->state_of_free[k]]) * of_free[k];
        change = -dual * move[3 * N + S + core->frees];
    }
    give_back(&held);
    return PyErr_Occurred() ? NULL : PyFloat_FromDouble(change);
}

/* ------------------------------------------------------------------------------------------------------- building */

#define NUMBERS(object, name, size) keep_numbers(&core->kept, object, name, size)
#define LONGS(object, name, found) keep_array(&core->kept, object, name, 'l', found)
#define ROOM(size) keep_room(&core->kept, size)

static int is_none(PyObject *object, const char *name)
{
    PyObject *found = PyObject_GetAttrString(object, name);
    int none = found == Py_None;
    Py_XDECREF(found);
    return none;
}

static double number(PyObject *object, const char *name)
{
    PyObject *found = PyObject_GetAttrString(object, name);
    double x = found ? PyFloat_AsDouble(found) : -1.0;
    Py_XDECREF(found);
    return x;
}

static void read_sides(Core *core, Part *p, PyObject *o, enum Values of)
{
    Size n = core->pairs, equals;
    p->linearize = sides_linearize, p->aim = sides_aim, p->respond = sides_respond;
    p->of = of;
    p->scales = keep_array(&core->kept, o, "scales", 'd', &p->count);
    p->row = LONGS(o, "row", &p->sides);
    p->sign = NUMBERS(o, "sign", p->sides);
    p->limit = NUMBERS(o, "limit", p->sides);
    p->equal = LONGS(o, "equal", &equals);
    p->equals = p->frees = equals;
    p->goal = NUMBERS(o, "goal", equals);
    p->stiff = NUMBERS(o, "stiff", equals);
    p->net = NUMBERS(o, "net", p->count);
    if (of == OF_ROWS) {
        p->E = NUMBERS(o, "E", p->count * n);
        p->columns = p->count;
    }
    if (of == OF_STATES) {
        Size count;
        p->states = LONGS(o, "states", &count);
        core->capped = core->stiff = 1;
    }
    p->opened = ROOM(p->sides);
    p->missed = ROOM(equals);
    p->value = ROOM(p->count), p->change = ROOM(p->count);
    p->stiffness = ROOM(p->count), p->pulled = ROOM(p->count);
    if (of == OF_PAIRS) p->diagonal = p->stiffness;
}

static void read_function(Core *core, Part *p, PyObject *o)
{
    Size n = core->pairs;
    PyObject *f = PyObject_GetAttrString(o, "function");
    if (!f) return;
    p->function = (enum Function)number(f, "kind");
    p->gradient = ROOM(n);
    if (p->function == QUADRATIC) {
        p->center = NUMBERS(f, "center", n);
        p->w = NUMBERS(f, "w", n);
        p->radius = number(f, "radius");
    } else {
        Size size = p->function == ENTROPY_OF_PAIRS ? n : core->states;
        p->log_reference = NUMBERS(f, "log_reference", size);
        p->slope = NUMBERS(f, "slope", size);
        p->bound = number(f, "bound"), p->unit = number(f, "unit");
    }
    p->bend = ROOM(p->function == ENTROPY_OF_STATES ? core->states : n);
    if (p->function == ENTROPY_OF_STATES) {
        p->per_state = ROOM(core->states);
        core->stiff = 1;
    } else
        p->diagonal = ROOM(n);
    Py_DECREF(f);
}

static void read_cone(Core *core, Part *p, PyObject *o)
{
    Size n = core->pairs;
    p->linearize = cone_linearize, p->aim = cone_aim, p->respond = cone_respond;
    p->center = NUMBERS(o, "center", n);
    p->weight = number(o, "weight"), p->first = number(o, "first");
    p->sides = 2;
    if (!is_none(o, "cost")) {
        p->cost = NUMBERS(o, "cost", n);
        p->bound = number(o, "bound"), p->unit = number(o, "unit");
        p->sides = 3;
    }
    if (is_none(o, "L")) {
        p->Q = NUMBERS(o, "Q", n);
        p->diagonal = ROOM(n);
    } else {
        p->L = keep_array(&core->kept, o, "L", 'd', &p->axes);
        p->axes /= n;
    }
    p->columns = p->sides + p->axes;
    p->ratio = NUMBERS(o, "ratio", n);
    p->gradient = ROOM(n);
    p->leaning = ROOM(n);
}

static void read_powers(Core *core, Part *p, PyObject *o)
{
    Size n = core->pairs, k;
    p->linearize = powers_linearize, p->aim = powers_aim, p->respond = powers_respond;
    p->both = LONGS(o, "both", &p->boths);
    p->single = LONGS(o, "single", &p->singles);
    p->center = NUMBERS(o, "center", n);
    p->p = number(o, "p"), p->radius = number(o, "radius"), p->weight = number(o, "weight");
    p->frees = k = p->boths;
    p->sides = 2 * k + (isnan(p->weight) ? 1 : 0);
    p->columns = isnan(p->weight) ? 1 : 0;
    p->diagonal = ROOM(n), p->gradient = ROOM(n), p->s_slope = ROOM(p->singles);
    double **rooms[] = {&p->a_slope, &p->A, &p->B, &p->T, &p->ra, &p->rb, &p->rt, &p->fa, &p->fb, &p->R};
    for (Size i = 0; i < (Size)(sizeof rooms / sizeof *rooms); i++) *rooms[i] = ROOM(k);
}

static void read_part(Core *core, Part *p, PyObject *o)
{
    PyObject *kind = PyObject_GetAttrString(o, "kind");
    const char *name = kind ? PyUnicode_AsUTF8(kind) : NULL;
    if (!name) return;
    p->force = NUMBERS(o, "force", core->pairs);
    p->of = OF_ROWS;
    if (!strcmp(name, "rows")) read_sides(core, p, o, OF_ROWS);
    else if (!strcmp(name, "caps")) read_sides(core, p, o, OF_STATES);
    else if (!strcmp(name, "box")) read_sides(core, p, o, OF_PAIRS);
    else if (!strcmp(name, "curve")) {
        p->linearize = curve_linearize, p->aim = curve_aim, p->respond = curve_respond;
        p->sides = p->columns = 1;
        read_function(core, p, o);
    } else if (!strcmp(name, "smooth")) {
        p->linearize = smooth_linearize, p->aim = no_aim, p->respond = no_response;
        p->weight = number(o, "weight");
        read_function(core, p, o);
    } else if (!strcmp(name, "cone")) read_cone(core, p, o);
    else if (!strcmp(name, "powers")) read_powers(core, p, o);
    else if (!strcmp(name, "largest")) {
        p->linearize = largest_linearize, p->aim = largest_aim, p->respond = largest_respond;
        p->center = NUMBERS(o, "center", core->pairs);
        p->weight = number(o, "weight");
        p->sides = 2 * core->pairs, p->frees = p->columns = 1;
        p->opened = ROOM(p->sides), p->diagonal = ROOM(core->pairs), p->gradient = ROOM(core->pairs);
    } else
        PyErr_Format(PyExc_ValueError, "a part of kind '%s'", name);
    Py_DECREF(kind);
}

static void place_columns(Core *core, Part *p)
{
    double **U = core->U + p->at_column;
    if (p->E)
        for (Size i = 0; i < p->count; i++) U[i] = p->E + i * core->pairs;
    else if (p->leaning) {
        U[0] = p->leaning, U[1] = p->gradient;
        if (p->cost) U[2] = p->cost;
        for (Size a = 0; a < p->axes; a++) U[p->sides + a] = p->L + a * core->pairs;
    } else if (p->columns)
        U[0] = p->gradient;
}

/* Which state each side and free unknown of a part belongs to. */
static void find_states(Core *core, Part *p)
{
    int32_t *of = core->state_of + p->at;
    for (Size k = 0; k < p->sides; k++) {
        if (p->row && p->of == OF_STATES) of[k] = (int32_t)p->states[p->row[k]];
        if (p->row && p->of == OF_PAIRS) of[k] = core->state_of[p->row[k]];
        if (p->both && k < 2 * p->boths) of[k] = core->state_of[p->both[k % p->boths]];
        if (p->linearize == largest_linearize) of[k] = core->state_of[k % core->pairs];
    }
    for (Size k = 0; k < p->boths; k++) core->state_of_free[p->at_free + k] = core->state_of[p->both[k]];
}

static int core_init(Core *core, PyObject *args, PyObject *keywords)
{
    PyObject *pattern, *point, *parts;
    if (!PyArg_ParseTuple(args, "OOO!", &pattern, &point, &PyList_Type, &parts)) return -1;
    if (!read_matrix(&core->kept, pattern, &core->A) || !read_normal(&core->kept, pattern, &core->A, &core->N)) return -1;
    Size n = core->pairs = core->A.pairs, S = core->states = core->A.states;
    core->parts = PyList_GET_SIZE(parts);
    core->part = (Part *)keep_room(&core->kept, core->parts * (Size)(sizeof(Part) / sizeof(double) + 1));
    if (!core->part && core->parts) return -1;
    Size sides = n, frees = 0, columns = 1;
    for (Size k = 0; k < core->parts; k++) {
        Part *p = &core->part[k];
        read_part(core, p, PyList_GET_ITEM(parts, k));
        if (PyErr_Occurred()) return -1;
        p->at = sides, p->at_free = frees, p->at_column = columns;
        sides += p->sides, frees += p->frees, columns += p->columns;
    }
    core->sides = sides, core->frees = frees, core->columns = columns;
    core->X = NUMBERS(point, "X", sides), core->Z = NUMBERS(point, "Z", sides);
    core->weights = NUMBERS(point, "W", sides);
    core->V = NUMBERS(point, "V", S), core->free = NUMBERS(point, "free", frees);
    core->c = NUMBERS(point, "c", n), core->q = NUMBERS(point, "q", S);
    core->off = NUMBERS(point, "off", n);
    core->ground = (Size)number(point, "ground");
    core->negligible = number(point, "negligible");
    if (PyErr_Occurred()) return -1;
    core->U = (double **)ROOM(columns);
    core->noticed = (uint8_t *)ROOM(S / 8 + 1);
    core->state_of = (int32_t *)ROOM(sides / 2 + 1), core->state_of_free = (int32_t *)ROOM(frees / 2 + 1);
    core->primal_of = ROOM(S), core->dual_of = ROOM(S);
    core->block = ROOM(columns * columns), core->small = ROOM(columns * columns);
    core->pivot = (int *)ROOM(columns);
    if (columns >= MANY_COLUMNS) core->packed = ROOM(columns * n);
    core->bent = ROOM(columns * n), core->flows = ROOM(columns * S), core->solved = ROOM(columns * S);
    core->missing = NUMBERS(point, "missing", S);
    double **of_pairs[] = {&core->diagonal, &core->W, &core->force, &core->force2, &core->x, &core->g};
    double **of_states[] = {&core->curvature, &core->stiffness, &core->total, &core->by_state, &core->softness,
                            &core->visits, &core->pull, &core->pull2, &core->r, &core->net, &core->y, &core->change, &core->left};
    double **of_columns[] = {&core->n, &core->border, &core->border2};
    for (Size i = 0; i < (Size)(sizeof of_pairs / sizeof *of_pairs); i++) *of_pairs[i] = ROOM(n);
    for (Size i = 0; i < (Size)(sizeof of_states / sizeof *of_states); i++) *of_states[i] = ROOM(S);
    for (Size i = 0; i < (Size)(sizeof of_columns / sizeof *of_columns); i++) *of_columns[i] = ROOM(columns);
    double *ones = ROOM(n);
    if (PyErr_Occurred()) return -1;
    for (Size i = 0; i < n; i++) ones[i] = 1.0;
    core->U[0] = ones;
    for (Size i = 0; i < sides; i++) {
        core->total_weight += core->weights[i];
        core->state_of[i] = -1;
    }
    for (Size k = 0; k < frees; k++) core->state_of_free[k] = -1;
    for (Size s = 0; s < S; s++)
        for (int64_t i = core->A.first[s]; i < core->A.first[s + 1]; i++) core->state_of[i] = (int32_t)s;
    for (Size k = 0; k < core->parts; k++) {
        Part *p = &core->part[k];
        find_states(core, p);
        p->s = core->X + p->at, p->m = core->Z + p->at, p->free = core->free + p->at_free;
        place_columns(core, p);
    }
    return 0;
}

static void core_dealloc(Core *core)
{
    keep_nothing(&core->kept);
    Py_TYPE(core)->tp_free((PyObject *)core);
}

static PyObject *core_size(Core *core, void *closure) { return PyLong_FromSsize_t(move_size(core)); }

static PyObject *core_opens(Core *core, PyObject *ignored)
{
    PyObject *out = PyList_New(core->parts);
    for (Size k = 0; out && k < core->parts; k++) PyList_SET_ITEM(out, k, PyFloat_FromDouble(core->part[k].open));
    return out;
}

#define FAST(name) (PyCFunction)(void (*)(void))name, METH_FASTCALL

static PyMethodDef core_methods[] = {
    {"linearize", FAST(core_linearize), "linearize(level) -> gap, mu, open, lacking: see what the equations are like here."},
    {"factor", FAST(core_factor), "factor(grounded) -> whether Newton's system could be factored."},
    {"move", FAST(core_move), "move(move, full): fill in the move towards X Z = aims, which stand in front."},
    {"refine", FAST(core_refine), "refine(move, full): solve once more for what rounding left."},
    {"lengths", FAST(core_lengths), "lengths(move[, other, share]) -> primal, dual: the longest steps."},
    {"advance", FAST(core_advance), "advance(move, primal, dual) -> change of the level."},
    {"opens", (PyCFunction)core_opens, METH_NOARGS, "By how much the equations of each part fail to hold."},
    {NULL},
};
static PyGetSetDef core_members[] = {{"size", (getter)core_size, NULL, "Entries of a move.", NULL}, {NULL}};

static PyTypeObject CoreType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "cvxmdp._path.Core",
    .tp_basicsize = sizeof(Core),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Core(pattern, point, parts): Newton's system of path following at a point.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)core_init,
    .tp_dealloc = (destructor)core_dealloc,
    .tp_methods = core_methods,
    .tp_getset = core_members,
};

/* ---------------------------------------------------------------------------------- the normal equations by themselves */

typedef struct {
    PyObject_HEAD
    Kept kept;
    Matrix A;
    Normal N;
} Equations;

static int equations_init(Equations *e, PyObject *args, PyObject *keywords)
{
    PyObject *pattern;
    if (!PyArg_ParseTuple(args, "O", &pattern) || !read_matrix(&e->kept, pattern, &e->A)) return -1;
    return read_normal(&e->kept, pattern, &e->A, &e->N) ? 0 : -1;
}

static void equations_dealloc(Equations *e)
{
    keep_nothing(&e->kept);
    Py_TYPE(e)->tp_free((PyObject *)e);
}

static PyObject *equations_factor(Equations *e, PyObject *const *args, Size count)
{
    Held held = {0};
    Numbers W, soft;
    Size ground;
    double shift;
    if (!take(&held, args, count, "d d n f", &W, &soft, &ground, &shift)) return NULL;
    int done = normal_factor(&e->N, &e->A, W.at, soft.at, ground, shift);
    give_back(&held);
    return PyBool_FromLong(done);
}

static PyObject *equations_solve(Equations *e, PyObject *const *args, Size count)
{
    Held held = {0};
    Numbers b;
    if (!take(&held, args, count, "D", &b)) return NULL;
    normal_solve(&e->N, b.at, b.size / e->A.states);
    give_back(&held);
    Py_RETURN_NONE;
}

static PyMethodDef equations_methods[] = {
    {"factor", FAST(equations_factor), "factor(W, soft, ground, shift) -> whether it could be factored."},
    {"solve", FAST(equations_solve), "solve(b): solve in place for right sides that stand one after the other."},
    {NULL},
};

static PyTypeObject EquationsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "cvxmdp._path.Equations",
    .tp_basicsize = sizeof(Equations),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Equations(pattern): the normal equations.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)equations_init,
    .tp_dealloc = (destructor)equations_dealloc,
    .tp_methods = equations_methods,
};

static PyMethodDef functions[] = {
    {"rows", FAST(pattern_rows), "rows(starts, columns, values, first, gamma, out...) -> entries of Xi - gamma P."},
    {"reach", FAST(pattern_reach), "reach(first, starts, columns, out...) -> entries: states that a state's pairs reach."},
    {"visit", FAST(pattern_visit), "visit(first, starts, columns, begun, out) -> how many states can be reached."},
    {"couple", FAST(pattern_couple), "couple(starts, reached, most, out_starts, out) -> entries of the upper triangle."},
    {"order", FAST(pattern_order), "order(starts, columns, out): eliminate the state with about the fewest neighbours first."},
    {"places", FAST(pattern_places), "places(starts, reached, upper_starts, upper_rows, out): where products go."},
    {NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_path", "Compiled parts of path following.", -1, functions};

PyMODINIT_FUNC PyInit__path(void)
{
    PyObject *made = PyModule_Create(&module);
    if (!made || PyType_Ready(&CoreType) < 0 || PyType_Ready(&EquationsType) < 0 || !find_lapack()) return NULL;
    Py_INCREF(&CoreType);
    Py_INCREF(&EquationsType);
    if (PyModule_AddObject(made, "Core", (PyObject *)&CoreType) < 0) return NULL;
    if (PyModule_AddObject(made, "Equations", (PyObject *)&EquationsType) < 0) return NULL;
    return made;
}
