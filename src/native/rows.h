/* Loops over a compressed sparse row matrix P (pairs x states); included once for each kind of Index.

   M = gamma P - Xi, where Xi says which state owns a pair. */

/* A row's product with V, in several sums that do not wait for each other.  Rows end at random: a loop over the last
   entries would often be mistaken about its end, so that they are always four, some of them times zero. */
INLINE double NAMED(dot)(const double *values, const Index *columns, Py_ssize_t size, const double *V)
{
    double a = 0.0, b = 0.0, c = 0.0, d = 0.0;
    if (size == 0) return 0.0;
    for (; size > 4; size -= 4, values += 4, columns += 4) {
        a += values[0] * V[columns[0]];
        b += values[1] * V[columns[1]];
        c += values[2] * V[columns[2]];
        d += values[3] * V[columns[3]];
    }
    static const double no_yes[2] = {0.0, 1.0};
    Py_ssize_t two = size > 1, three = size > 2, four = size > 3;
    a += values[0] * V[columns[0]];
    b += no_yes[two] * values[two] * V[columns[two]];
    c += no_yes[three] * values[2 * three] * V[columns[2 * three]];
    d += no_yes[four] * values[3 * four] * V[columns[3 * four]];
    return (a + b) + (c + d);
}

/* line += scale times a row's product with X, whose width is a constant: the sums stay in registers. */
INLINE void NAMED(gather_few)(double *line, double scale, const double *values, const Index *columns, Py_ssize_t size,
                              const double *X, int width)
{
    double total[8] = {0};
    for (Py_ssize_t k = 0; k < size; k++) {
        const double *there = X + (Py_ssize_t)columns[k] * width;
        for (int j = 0; j < width; j++) total[j] += values[k] * there[j];
    }
    for (int j = 0; j < width; j++) line[j] += scale * total[j];
}

/* line += scale times a row's product with X; where X is wide, four entries at a time. */
INLINE void NAMED(gather)(double *line, double scale, const double *values, const Index *columns, Py_ssize_t size,
                          const double *X, Py_ssize_t width)
{
    switch (width) {
    case 1: line[0] += scale * NAMED(dot)(values, columns, size, X); return;
    case 2: NAMED(gather_few)(line, scale, values, columns, size, X, 2); return;
    case 3: NAMED(gather_few)(line, scale, values, columns, size, X, 3); return;
    case 4: NAMED(gather_few)(line, scale, values, columns, size, X, 4); return;
    case 5: NAMED(gather_few)(line, scale, values, columns, size, X, 5); return;
    case 6: NAMED(gather_few)(line, scale, values, columns, size, X, 6); return;
    case 7: NAMED(gather_few)(line, scale, values, columns, size, X, 7); return;
    case 8: NAMED(gather_few)(line, scale, values, columns, size, X, 8); return;
    }
    Py_ssize_t k = 0;
    for (; k + 4 <= size; k += 4) {
        double a = scale * values[k], b = scale * values[k + 1], c = scale * values[k + 2], d = scale * values[k + 3];
        const double *A = X + columns[k] * width, *B = X + columns[k + 1] * width;
        const double *C = X + columns[k + 2] * width, *D = X + columns[k + 3] * width;
#pragma omp simd
        for (Py_ssize_t j = 0; j < width; j++) line[j] += a * A[j] + b * B[j] + c * C[j] + d * D[j];
    }
    for (; k < size; k++) {
        double a = scale * values[k];
        const double *A = X + columns[k] * width;
#pragma omp simd
        for (Py_ssize_t j = 0; j < width; j++) line[j] += a * A[j];
    }
}

/* best = the least c + gamma P V of each state, pair = who attains it. */
FOR_EACH_PROCESSOR static void NAMED(sweep)(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    const double *c = t->c.at, *V = t->V.at;
    for (Py_ssize_t s = start; s < end; s++) {
        double least = INFINITY;
        int64_t where = t->first.at[s];
        for (int64_t i = t->first.at[s]; i < t->first.at[s + 1]; i++) {
            Index at = indptr[i];
            double total = c[i] + t->gamma * NAMED(dot)(t->data.at + at, indices + at, indptr[i + 1] - at, V);
            if (total < least) {
                least = total;
                where = i;
            }
        }
        t->out.at[s] = least;
        t->pair.at[s] = where;
    }
}

/* out = c + gamma P V - Xi V. */
FOR_EACH_PROCESSOR static void NAMED(advantage)(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    const double *V = t->V.at;
    for (Py_ssize_t i = start; i < end; i++) {
        Index at = indptr[i];
        double total = NAMED(dot)(t->data.at + at, indices + at, indptr[i + 1] - at, V);
        t->out.at[i] = t->c.at[i] + t->gamma * total - V[t->owner.at[i]];
    }
}

/* out = C + gamma P V - Xi V for the columns of C and V. */
FOR_EACH_PROCESSOR static void NAMED(advantages)(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    Py_ssize_t width = t->width;
    for (Py_ssize_t i = start; i < end; i++) {
        double *line = t->out.at + i * width;
        const double *begin = t->c.at + i * width, *own = t->V.at + t->owner.at[i] * width;
        for (Py_ssize_t j = 0; j < width; j++) line[j] = begin[j] - own[j];
        Index at = indptr[i];
        NAMED(gather)(line, t->gamma, t->data.at + at, indices + at, indptr[i + 1] - at, t->V.at, width);
    }
}

/* ends = where the rows of P_pi end. */
static void NAMED(taken_ends)(const Task *t)
{
    const Index *indptr = t->indptr.at;
    Index *ends = t->ends.at, end = ends[0] = 0;
    for (Py_ssize_t s = 0; s < t->first.size - 1; s++) {
        for (int64_t i = t->first.at[s]; i < t->first.at[s + 1]; i++)
            if (t->c.at[i] != 0.0) end += indptr[i + 1] - indptr[i];
        ends[s + 1] = end;
    }
}

/* P_pi: the rows of the pairs that are taken, one after the other, times their probabilities c. */
FOR_EACH_PROCESSOR static void NAMED(taken)(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const Index *indices = t->indices.at, *indptr = t->indptr.at, *ends = t->ends.at;
    Index *columns = t->columns.at;
    Py_ssize_t at = ends[start];
    for (int64_t i = t->first.at[start]; i < t->first.at[end]; i++) {
        if (t->c.at[i] == 0.0) continue;
        for (Py_ssize_t k = indptr[i]; k < indptr[i + 1]; k++, at++) {
            t->out.at[at] = t->c.at[i] * t->data.at[k];
            columns[at] = indices[k];
        }
    }
}

/* out = x - gamma P_pi x. */
FOR_EACH_PROCESSOR static void NAMED(evaluated)(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    const double *x = t->V.at;
    for (Py_ssize_t s = start; s < end; s++) {
        Index at = indptr[s];
        t->out.at[s] = x[s] - t->gamma * NAMED(dot)(t->data.at + at, indices + at, indptr[s + 1] - at, x);
    }
}

/* out = X - gamma P_pi X. */
FOR_EACH_PROCESSOR static void NAMED(evaluated_all)(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    Py_ssize_t width = t->width;
    for (Py_ssize_t s = start; s < end; s++) {
        double *line = t->out.at + s * width;
        const double *own = t->V.at + s * width;
        for (Py_ssize_t j = 0; j < width; j++) line[j] = own[j];
        Index at = indptr[s];
        NAMED(gather)(line, -t->gamma, t->data.at + at, indices + at, indptr[s + 1] - at, t->V.at, width);
    }
}

/* out += scale times a row; columns may come twice. */
INLINE void NAMED(scatter)(double *out, double scale, const double *values, const Index *columns, Py_ssize_t size)
{
    Py_ssize_t k = 0;
    if (size >= LONG_ROW)
        for (; k + 4 <= size; k += 4) {
            out[columns[k]] += scale * values[k];
            out[columns[k + 1]] += scale * values[k + 1];
            out[columns[k + 2]] += scale * values[k + 2];
            out[columns[k + 3]] += scale * values[k + 3];
        }
    for (; k < size; k++) out[columns[k]] += scale * values[k];
}

/* The entries of a row in column s. */
INLINE double NAMED(entry)(const double *values, const Index *columns, Py_ssize_t size, Py_ssize_t s)
{
    double total = 0.0;
    if (size >= LONG_ROW) {
#pragma omp simd reduction(+ : total)
        for (Py_ssize_t k = 0; k < size; k++) total += columns[k] == (Index)s ? values[k] : 0.0;
    } else
        for (Py_ssize_t k = 0; k < size; k++)
            if (columns[k] == s) total += values[k];
    return total;
}

/* out = x - gamma P_pi' x; out starts as zero. */
FOR_EACH_PROCESSOR static void NAMED(evaluated_back)(const Task *t)
{
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    const double *x = t->V.at;
    for (Py_ssize_t s = 0; s < t->V.size; s++) {
        Index at = indptr[s];
        t->out.at[s] += x[s];
        NAMED(scatter)(t->out.at, -t->gamma * x[s], t->data.at + at, indices + at, indptr[s + 1] - at);
    }
}

/* out = Xi'd - gamma P'd. */
FOR_EACH_PROCESSOR static void NAMED(flow)(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    const double *d = t->c.at;
    double *out = t->parts[part];
    for (Py_ssize_t s = start; s < end; s++) {
        double own = 0.0;
        for (int64_t i = t->first.at[s]; i < t->first.at[s + 1]; i++) {
            if (d[i] == 0.0) continue;
            own += d[i];
            Index at = indptr[i];
            NAMED(scatter)(out, -t->gamma * d[i], t->data.at + at, indices + at, indptr[i + 1] - at);
        }
        out[s] += own;
    }
}

/* The flow of d and of e, side by side. */
FOR_EACH_PROCESSOR static void NAMED(flow_of_two)(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    const double *d = t->c.at, *e = t->V.at;
    double *out = t->parts[part];
    for (Py_ssize_t s = start; s < end; s++) {
        double own[2] = {0.0, 0.0};
        for (int64_t i = t->first.at[s]; i < t->first.at[s + 1]; i++) {
            if (d[i] == 0.0 && e[i] == 0.0) continue;
            own[0] += d[i];
            own[1] += e[i];
            double mass[2] = {t->gamma * d[i], t->gamma * e[i]};
            for (Py_ssize_t k = indptr[i]; k < indptr[i + 1]; k++) {
                double *there = out + 2 * indices[k];
                there[0] -= mass[0] * t->data.at[k];
                there[1] -= mass[1] * t->data.at[k];
            }
        }
        out[2 * s] += own[0];
        out[2 * s + 1] += own[1];
    }
}

/* out = M' diag(weights) M V: each row is met once, for the product and for its transpose. */
FOR_EACH_PROCESSOR static void NAMED(weighted)(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    const double *V = t->V.at;
    double *out = t->parts[part];
    for (Py_ssize_t s = start; s < end; s++) {
        double own = 0.0;
        for (int64_t i = t->first.at[s]; i < t->first.at[s + 1]; i++) {
            double weight = weight_of(&t->weights, i);
            if (weight == 0.0) continue;
            Index at = indptr[i];
            Py_ssize_t size = indptr[i + 1] - at;
            double x = weight * (t->gamma * NAMED(dot)(t->data.at + at, indices + at, size, V) - V[s]);
            own -= x;
            NAMED(scatter)(out, t->gamma * x, t->data.at + at, indices + at, size);
        }
        out[s] += own;
    }
}

/* out = diagonal of M' diag(weights) M. */
FOR_EACH_PROCESSOR static void NAMED(weighted_diagonal)(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    const Task *t = given;
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    double *out = t->parts[part];
    for (Py_ssize_t s = start; s < end; s++) {
        double own = 0.0;
        for (int64_t i = t->first.at[s]; i < t->first.at[s + 1]; i++) {
            double weight = weight_of(&t->weights, i);
            if (weight == 0.0) continue;
            own += weight;
            for (Py_ssize_t k = indptr[i]; k < indptr[i + 1]; k++) {
                double x = t->gamma * t->data.at[k];
                out[indices[k]] += weight * x * x;
                if (indices[k] == s) own -= 2.0 * weight * x;
            }
        }
        out[s] += own;
    }
}

/* Rows of the lower triangle of M' diag(weights) M, between two cuts; columns of P are sorted. */
FOR_EACH_PROCESSOR static void NAMED(gram)(void *given, Py_ssize_t low, Py_ssize_t high, int part)
{
    const Task *t = given;
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    const double *weights = t->c.at;
    Py_ssize_t num_states = t->width;
    for (Py_ssize_t i = 0; i < t->owner.size; i++) {
        double weight = weights[i];
        if (weight == 0.0) continue;
        int64_t s = t->owner.at[i];
        const double *values = t->data.at + indptr[i];
        const Index *columns = indices + indptr[i];
        Py_ssize_t size = indptr[i + 1] - indptr[i];
        if (low <= s && s < high) {
            double *line = t->out.at + s * num_states;
            line[s] += weight;
            for (Py_ssize_t k = 0; k < size && columns[k] <= s; k++)
                line[columns[k]] -= (columns[k] == s ? 2.0 : 1.0) * weight * t->gamma * values[k];
        }
        for (Py_ssize_t k = 0; k < size; k++) {
            Index j = columns[k];
            if (j < low) continue;
            if (j >= high) break;
            double *line = t->out.at + j * num_states, value = weight * t->gamma * values[k];
            if (j > s) line[s] -= value;
            NAMED(scatter)(line, t->gamma * value, values, columns, k + 1);
        }
    }
}

/* out = E diag(weights) M for a sparse E given by its columns, one a pair. */
FOR_EACH_PROCESSOR static void NAMED(crossed)(const Task *t, const double *values, const Sized *rows,
                                              const Sized *starts)
{
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    Py_ssize_t n = whole_of(starts, 0);
    for (Py_ssize_t i = 0; i < t->owner.size; i++) {
        Py_ssize_t end = whole_of(starts, i + 1);
        if (t->c.at[i] == 0.0) n = end;
        for (; n < end; n++) {
            double *line = t->out.at + whole_of(rows, n) * t->width, x = t->c.at[i] * values[n];
            Index at = indptr[i];
            line[t->owner.at[i]] -= x;
            NAMED(scatter)(line, t->gamma * x, t->data.at + at, indices + at, indptr[i + 1] - at);
        }
    }
}

/* Sums of the probability that pair leads to a state of lower value, of lower number, of higher number. */
FOR_EACH_PROCESSOR static void NAMED(downhill)(const Task *t, double *sums)
{
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    const double *data = t->data.at, *V = t->V.at;
    double value = 0.0, lower = 0.0, higher = 0.0;
    for (Py_ssize_t s = 0; s < t->pair.size; s++) {
        int64_t i = t->pair.at[s];
        for (Py_ssize_t k = indptr[i]; k < indptr[i + 1]; k++) {
            Index j = indices[k];
            value += (V[j] < V[s]) * data[k]; /* a product, since a branch would often be mistaken */
            lower += (j < s) * data[k];
            higher += (j > s) * data[k];
        }
    }
    sums[0] = value;
    sums[1] = lower;
    sums[2] = higher;
}

/* Bellman's equation of a state under one of its pairs, solved for the state's value:
   (c + gamma times the product of V with the pair's row but for s) / (1 - gamma P(s | pair)).
   The inverse does not wait for the values of the states before. */
INLINE double NAMED(solved)(const Task *t, const double *V, Py_ssize_t s, int64_t i)
{
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    const double *data = t->data.at;
    double total = 0.0, own = 0.0;
    for (Py_ssize_t k = indptr[i]; k < indptr[i + 1]; k++) {
        if (indices[k] == s) own += data[k];
        else total += data[k] * V[indices[k]];
    }
    return (t->c.at[i] + t->gamma * total) * (1.0 / (1.0 - t->gamma * own));
}

/* Ask for the row of a pair that will be read, if its state is among those to be met. */
INLINE void NAMED(fetch)(const Task *t, Py_ssize_t s, Py_ssize_t start, Py_ssize_t end, const int64_t *pairs)
{
    if (s < start || s >= end) return;
    Index at = ((const Index *)t->indptr.at)[pairs[s]];
    FETCH((const Index *)t->indices.at + at);
    FETCH(t->data.at + at);
}

/* Bellman's equation met state by state, up or down their numbers, each time with the newest V (Gauss-Seidel). */
FOR_EACH_PROCESSOR static void NAMED(relax)(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    Task *t = given;
    double *V = t->out.at, worst = 0.0;
    for (Py_ssize_t k = start; k < end; k++) {
        Py_ssize_t s = t->upward ? k : end - 1 - (k - start);
        double least = INFINITY;
        int64_t where = t->first.at[s];
        if (!t->upward) NAMED(fetch)(t, s - AHEAD, start, end, t->first.at);
        for (int64_t i = t->first.at[s]; i < t->first.at[s + 1]; i++) {
            double total = NAMED(solved)(t, V, s, i);
            if (total < least) {
                least = total;
                where = i;
            }
        }
        worst = larger(worst, fabs(least - V[s]));
        V[s] = least;
        t->pair.at[s] = where;
    }
    t->found[part] = worst;
}

/* The same for the policy that takes pair in place of the minimum. */
FOR_EACH_PROCESSOR static void NAMED(settle)(void *given, Py_ssize_t start, Py_ssize_t end, int part)
{
    Task *t = given;
    double *V = t->out.at, worst = 0.0;
    for (Py_ssize_t k = start; k < end; k++) {
        Py_ssize_t s = t->upward ? k : end - 1 - (k - start);
        NAMED(fetch)(t, t->upward ? s + AHEAD : s - AHEAD, start, end, t->pair.at);
        double total = NAMED(solved)(t, V, s, t->pair.at[s]);
        worst = larger(worst, fabs(total - V[s]));
        V[s] = total;
    }
    t->found[part] = worst;
}

/* Move what waits in each state on to its successors under the policy c, up or down the states' numbers; x gains what
   has passed.  Less than a share least of x stays where it is.  Returns all that still waits. */
FOR_EACH_PROCESSOR static double NAMED(push)(const Task *t, double *waiting, double *x, Py_ssize_t size, double least)
{
    const Index *indices = t->indices.at, *indptr = t->indptr.at;
    const double *pi = t->c.at;
    for (Py_ssize_t k = 0; k < size; k++) {
        Py_ssize_t s = t->upward ? k : size - 1 - k;
        double mass = waiting[s], own = 0.0;
        if (mass <= least * x[s]) continue;
        for (int64_t i = t->first.at[s]; i < t->first.at[s + 1]; i++) {
            if (pi[i] == 0.0) continue;
            Index at = indptr[i];
            own += pi[i] * NAMED(entry)(t->data.at + at, indices + at, indptr[i + 1] - at, s);
        }
        mass /= 1.0 - t->gamma * own;
        x[s] += mass;
        for (int64_t i = t->first.at[s]; i < t->first.at[s + 1]; i++) {
            if (pi[i] == 0.0) continue;
            Index at = indptr[i];
            NAMED(scatter)(waiting, t->gamma * mass * pi[i], t->data.at + at, indices + at, indptr[i + 1] - at);
        }
        waiting[s] = 0.0;
    }
    return sum_of(waiting, size);
}
