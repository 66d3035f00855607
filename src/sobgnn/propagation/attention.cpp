// Attention over the edges of a graph, for CPUs: scores, softmax, weighting and sum of a row in one go.
//
//   out[i] = sum over the row's edges of p v[j],  moment[i] = sum of p w,  p = softmax over the row of s
//   kind 0  s = leaky(t[i] + u[j] + w a)
//   kind 1  s = leaky((t[i] + u[j]) sigmoid(q[i] . v[j]))
//   kind 2  s = (q[i] . k[j] + w t[i]) / sqrt(c)
//
// For every head. Rows are [heads, channels]; a row is computed by one thread in the order of its edges, so the number
// of threads does not change a bit. The backward passes compute scores again from log_sum, the logarithm of each row's
// sum of exponentials: `rows` gives what belongs to rows, `nodes`, over the transposed pattern, what belongs to nodes.
//
// The file includes itself once for each type, because target clones and templates do not go together.

#ifndef REAL

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif
#define EXPORT extern "C" __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))

#define REAL float
#define NAMED(name) name##_f32
#include "attention.cpp"
#undef REAL
#undef NAMED
#define REAL double
#define NAMED(name) name##_f64
#include "attention.cpp"

#else

struct NAMED(Attention) {
  const int64_t *indptr;
  const int32_t *other;
  const float *weight;
  const REAL *query, *key, *target, *source, *edge, *value;
  int64_t rows, heads, channels;
  int kind;
  REAL slope, scale;
};

// A score, its derivative by what the leaky ReLU or the scale reads, and the gate of kind 1.
struct NAMED(Score) {
  REAL value, slope, gate;
};

INLINE REAL NAMED(dot)(const REAL *__restrict a, const REAL *__restrict b, int64_t count) {
  REAL sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < count; ++c) sum += a[c] * b[c];
  return sum;
}

INLINE void NAMED(add)(REAL *__restrict sums, REAL factor, const REAL *__restrict x, int64_t count) {
#pragma omp simd
  for (int64_t c = 0; c < count; ++c) sums[c] += factor * x[c];
}

// Of the edge from node j to row i: `row` and `node` are their places among [.., heads].
INLINE NAMED(Score) NAMED(score)(const NAMED(Attention) & a, int64_t head, int64_t row, int64_t node, REAL w) {
  REAL inner, gate = 0;
  if (a.kind == 0) {
    inner = a.target[row] + a.source[node] + w * a.edge[head];
  } else {
    const REAL *const key = a.kind == 1 ? a.value : a.key;
    const REAL product = NAMED(dot)(a.query + row * a.channels, key + node * a.channels, a.channels);
    if (a.kind == 2) return {(product + a.target[row] * w) * a.scale, a.scale, 0};
    gate = 1 / (1 + std::exp(-product));
    inner = (a.target[row] + a.source[node]) * gate;
  }
  const REAL slope = inner > 0 ? REAL(1) : a.slope;
  return {inner * slope, slope, gate};
}

CLONES static void NAMED(forward_row)(const NAMED(Attention) & a, int64_t i, REAL *scores, REAL *out, REAL *moment,
                                      REAL *log_sum) {
  const int64_t begin = a.indptr[i], end = a.indptr[i + 1], first = i * a.heads;
  const REAL none = -std::numeric_limits<REAL>::infinity();
  std::fill_n(log_sum + first, a.heads, none);  // the highest score, until the sum is known
  for (int64_t e = begin; e < end; ++e) {
    REAL *const own = scores + (e - begin) * a.heads;
    const int64_t node = a.other[e] * a.heads;
    for (int64_t h = 0; h < a.heads; ++h) {
      own[h] = NAMED(score)(a, h, first + h, node + h, a.weight[e]).value;
      log_sum[first + h] = std::max(log_sum[first + h], own[h]);
    }
  }
  std::fill_n(out + first * a.channels, a.heads * a.channels, REAL(0));
  std::fill_n(moment + first, a.heads, REAL(0));
  REAL *const sums = scores + (end - begin) * a.heads;
  std::fill_n(sums, a.heads, REAL(0));
  for (int64_t e = begin; e < end; ++e) {
    REAL *const own = scores + (e - begin) * a.heads;
    const int64_t node = a.other[e] * a.heads;
    for (int64_t h = 0; h < a.heads; ++h) {
      const REAL power = std::exp(own[h] - log_sum[first + h]);
      sums[h] += power;
      moment[first + h] += power * a.weight[e];
      NAMED(add)(out + (first + h) * a.channels, power, a.value + (node + h) * a.channels, a.channels);
    }
  }
  for (int64_t h = 0; h < a.heads && begin < end; ++h) {
    const REAL share = 1 / sums[h];
    moment[first + h] *= share;
    REAL *const own = out + (first + h) * a.channels;
    for (int64_t c = 0; c < a.channels; ++c) own[c] *= share;
    log_sum[first + h] += std::log(sums[h]);
  }
}

CLONES static void NAMED(backward_row)(const NAMED(Attention) & a, int64_t i, const REAL *out, const REAL *moment,
                                       const REAL *log_sum, const REAL *to_out, const REAL *to_moment, REAL *average,
                                       REAL *to_query, REAL *to_target, REAL *to_edge) {
  const int64_t first = i * a.heads;
  for (int64_t h = 0; h < a.heads; ++h) {
    const int64_t row = first + h;
    average[row] = NAMED(dot)(to_out + row * a.channels, out + row * a.channels, a.channels) +
                   to_moment[row] * moment[row];
    to_target[row] = 0;
    if (a.kind == 0)
      to_edge[row] = 0;
    else
      std::fill_n(to_query + row * a.channels, a.channels, REAL(0));
  }
  for (int64_t e = a.indptr[i]; e < a.indptr[i + 1]; ++e) {
    const REAL w = a.weight[e];
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t row = first + h, node = a.other[e] * a.heads + h;
      const REAL *const value = a.value + node * a.channels;
      const NAMED(Score) s = NAMED(score)(a, h, row, node, w);
      const REAL to_share = NAMED(dot)(to_out + row * a.channels, value, a.channels) + to_moment[row] * w;
      const REAL inner = std::exp(s.value - log_sum[row]) * (to_share - average[row]) * s.slope;
      if (a.kind == 0) {
        to_target[row] += inner;
        to_edge[row] += inner * w;
      } else if (a.kind == 1) {
        const REAL to_product = inner * (a.target[row] + a.source[node]) * s.gate * (1 - s.gate);
        to_target[row] += inner * s.gate;
        NAMED(add)(to_query + row * a.channels, to_product, value, a.channels);
      } else {
        to_target[row] += inner * w;
        NAMED(add)(to_query + row * a.channels, inner, a.key + node * a.channels, a.channels);
      }
    }
  }
}

CLONES static void NAMED(backward_node)(const NAMED(Attention) & a, int64_t j, const REAL *log_sum, const REAL *to_out,
                                        const REAL *to_moment, const REAL *average, REAL *to_key, REAL *to_source,
                                        REAL *to_value) {
  const int64_t first = j * a.heads, size = a.heads * a.channels;
  std::fill_n(to_value + j * size, size, REAL(0));
  if (a.kind == 2)
    std::fill_n(to_key + j * size, size, REAL(0));
  else
    std::fill_n(to_source + first, a.heads, REAL(0));
  for (int64_t e = a.indptr[j]; e < a.indptr[j + 1]; ++e) {
    const REAL w = a.weight[e];
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t row = a.other[e] * a.heads + h, node = first + h;
      const REAL *const gradient = to_out + row * a.channels;
      const NAMED(Score) s = NAMED(score)(a, h, row, node, w);
      const REAL share = std::exp(s.value - log_sum[row]);
      const REAL to_share = NAMED(dot)(gradient, a.value + node * a.channels, a.channels) + to_moment[row] * w;
      const REAL inner = share * (to_share - average[row]) * s.slope;
      NAMED(add)(to_value + node * a.channels, share, gradient, a.channels);
      if (a.kind == 0) {
        to_source[node] += inner;
      } else if (a.kind == 1) {
        const REAL to_product = inner * (a.target[row] + a.source[node]) * s.gate * (1 - s.gate);
        to_source[node] += inner * s.gate;
        NAMED(add)(to_value + node * a.channels, to_product, a.query + row * a.channels, a.channels);
      } else {
        NAMED(add)(to_key + node * a.channels, inner, a.query + row * a.channels, a.channels);
      }
    }
  }
}

#define TERMS                                                                                                       \
  const int64_t *indptr, const int32_t *other, const float *weight, const REAL *query, const REAL *key,             \
      const REAL *target, const REAL *source, const REAL *edge, const REAL *value
#define SIZES int64_t rows, int64_t heads, int64_t channels, int kind, double slope, int threads
#define ATTENTION                                                                                                   \
  {indptr, other, weight, query,    key,  target,     source,                                                       \
   edge,   value, rows,   heads,    channels, kind, REAL(slope), REAL(1 / std::sqrt(double(channels)))}

EXPORT void NAMED(sobgnn_attend)(TERMS, REAL *out, REAL *moment, REAL *log_sum, SIZES) {
  const NAMED(Attention) a = ATTENTION;
  int64_t longest = 0;
  for (int64_t i = 0; i < rows; ++i) longest = std::max(longest, indptr[i + 1] - indptr[i]);
#pragma omp parallel num_threads(threads)
  {
    std::vector<REAL> scores((longest + 1) * heads);
#pragma omp for schedule(dynamic, 64)
    for (int64_t i = 0; i < rows; ++i) NAMED(forward_row)(a, i, scores.data(), out, moment, log_sum);
  }
}

EXPORT void NAMED(sobgnn_attend_rows)(TERMS, const REAL *out, const REAL *moment, const REAL *log_sum,
                                      const REAL *to_out, const REAL *to_moment, REAL *average, REAL *to_query,
                                      REAL *to_target, REAL *to_edge, SIZES) {
  const NAMED(Attention) a = ATTENTION;
#pragma omp parallel for schedule(dynamic, 64) num_threads(threads)
  for (int64_t i = 0; i < rows; ++i)
    NAMED(backward_row)(a, i, out, moment, log_sum, to_out, to_moment, average, to_query, to_target, to_edge);
}

EXPORT void NAMED(sobgnn_attend_nodes)(TERMS, const REAL *log_sum, const REAL *to_out, const REAL *to_moment,
                                       const REAL *average, REAL *to_key, REAL *to_source, REAL *to_value, SIZES) {
  const NAMED(Attention) a = ATTENTION;
#pragma omp parallel for schedule(dynamic, 64) num_threads(threads)
  for (int64_t j = 0; j < rows; ++j)
    NAMED(backward_node)(a, j, log_sum, to_out, to_moment, average, to_key, to_source, to_value);
}

#undef TERMS
#undef SIZES
#undef ATTENTION

#endif
