// Attention over the edges of a graph, for CPUs: scores, softmax, weighting and sum of a row in one go.
//
//   out[i] = sum over the row's edges of p v[j],  moment[i] = sum of p w,  p = softmax over the row of s
//   kind 0  s = leaky(t[i] + u[j] + w a)
//   kind 1  s = leaky((t[i] + u[j]) sigmoid(q[i] . v[j]))
//   kind 2  s = (q[i] . k[j] + w t[i]) / sqrt(c)
//
// For every head. Rows are [heads, channels]; a row is computed by one thread in the order of its edges, so the number
// of threads does not change a bit. The backward passes compute scores again from log_sum, the logarithm of each row's
// sum of exponentials: `Rows` gives what belongs to rows, `Nodes`, over the transposed pattern, what belongs to nodes.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "targets.h"

namespace {

constexpr int64_t part_rows = 64;

template <class T> struct Attention {
  const int64_t *indptr;
  const int32_t *other;
  const float *weight;
  const T *query, *key, *target, *source, *edge, *value;
  int64_t rows, heads, channels;
  int kind;
  T slope, scale;
};

// A score, its derivative by what the leaky ReLU or the scale reads, and the gate of kind 1.
template <class T> struct Score {
  T value, slope, gate;
};

template <class T> SOBGNN_INLINE T dot(const T *__restrict a, const T *__restrict b, int64_t count) {
  T sum = 0;
#ifdef _OPENMP
#pragma omp simd reduction(+ : sum)
#endif
  for (int64_t c = 0; c < count; ++c) sum += a[c] * b[c];
  return sum;
}

template <class T> SOBGNN_INLINE void add(T *__restrict sums, T factor, const T *__restrict x, int64_t count) {
#ifdef _OPENMP
#pragma omp simd
#endif
  for (int64_t c = 0; c < count; ++c) sums[c] += factor * x[c];
}

// Of the edge from node j to row i: `row` and `node` are their places among [.., heads].
template <class T> SOBGNN_INLINE Score<T> score(const Attention<T> &a, int64_t head, int64_t row, int64_t node, T w) {
  T inner, gate = 0;
  if (a.kind == 0) {
    inner = a.target[row] + a.source[node] + w * a.edge[head];
  } else {
    const T *const key = a.kind == 1 ? a.value : a.key;
    const T product = dot(a.query + row * a.channels, key + node * a.channels, a.channels);
    if (a.kind == 2) return {(product + a.target[row] * w) * a.scale, a.scale, T(0)};
    gate = 1 / (1 + std::exp(-product));
    inner = (a.target[row] + a.source[node]) * gate;
  }
  const T slope = inner > 0 ? T(1) : a.slope;
  return {inner * slope, slope, gate};
}

struct Forward {
  template <class T>
  SOBGNN_INLINE static void run(const Attention<T> *given, int64_t begin_row, int64_t end_row, T *out, T *moment,
                                T *log_sum) {
    const Attention<T> &a = *given;
    std::vector<T> buffer;
    for (int64_t i = begin_row; i < end_row; ++i) {
      const int64_t begin = a.indptr[i], end = a.indptr[i + 1], first = i * a.heads;
      buffer.resize((end - begin + 1) * a.heads);
      T *const scores = buffer.data(), *const sums = scores + (end - begin) * a.heads;
      std::fill_n(log_sum + first, a.heads, -std::numeric_limits<T>::infinity());  // the highest score, at first
      for (int64_t e = begin; e < end; ++e) {
        T *const own = scores + (e - begin) * a.heads;
        const int64_t node = a.other[e] * a.heads;
        for (int64_t h = 0; h < a.heads; ++h) {
          own[h] = score(a, h, first + h, node + h, T(a.weight[e])).value;
          log_sum[first + h] = std::max(log_sum[first + h], own[h]);
        }
      }
      std::fill_n(out + first * a.channels, a.heads * a.channels, T(0));
      std::fill_n(moment + first, a.heads, T(0));
      std::fill_n(sums, a.heads, T(0));
      for (int64_t e = begin; e < end; ++e) {
        const T *const own = scores + (e - begin) * a.heads;
        const int64_t node = a.other[e] * a.heads;
        for (int64_t h = 0; h < a.heads; ++h) {
          const T power = std::exp(own[h] - log_sum[first + h]);
          sums[h] += power;
          moment[first + h] += power * T(a.weight[e]);
          add(out + (first + h) * a.channels, power, a.value + (node + h) * a.channels, a.channels);
        }
      }
      for (int64_t h = 0; h < a.heads && begin < end; ++h) {
        const T share = 1 / sums[h];
        T *const own = out + (first + h) * a.channels;
        moment[first + h] *= share;
        for (int64_t c = 0; c < a.channels; ++c) own[c] *= share;
        log_sum[first + h] += std::log(sums[h]);
      }
    }
  }
};

struct Rows {
  template <class T>
  SOBGNN_INLINE static void run(const Attention<T> *given, int64_t begin_row, int64_t end_row, const T *out,
                                const T *moment, const T *log_sum, const T *to_out, const T *to_moment, T *average,
                                T *to_query, T *to_target, T *to_edge) {
    const Attention<T> &a = *given;
    for (int64_t i = begin_row; i < end_row; ++i) {
      const int64_t first = i * a.heads;
      for (int64_t row = first; row < first + a.heads; ++row) {
        average[row] = dot(to_out + row * a.channels, out + row * a.channels, a.channels) + to_moment[row] * moment[row];
        to_target[row] = 0;
        if (a.kind == 0)
          to_edge[row] = 0;
        else
          std::fill_n(to_query + row * a.channels, a.channels, T(0));
      }
      for (int64_t e = a.indptr[i]; e < a.indptr[i + 1]; ++e) {
        const T w = a.weight[e];
        for (int64_t h = 0; h < a.heads; ++h) {
          const int64_t row = first + h, node = a.other[e] * a.heads + h;
          const T *const value = a.value + node * a.channels;
          const Score<T> s = score(a, h, row, node, w);
          const T to_share = dot(to_out + row * a.channels, value, a.channels) + to_moment[row] * w;
          const T inner = std::exp(s.value - log_sum[row]) * (to_share - average[row]) * s.slope;
          if (a.kind == 0) {
            to_target[row] += inner;
            to_edge[row] += inner * w;
          } else if (a.kind == 1) {
            const T to_product = inner * (a.target[row] + a.source[node]) * s.gate * (1 - s.gate);
            to_target[row] += inner * s.gate;
            add(to_query + row * a.channels, to_product, value, a.channels);
          } else {
            to_target[row] += inner * w;
            add(to_query + row * a.channels, inner, a.key + node * a.channels, a.channels);
          }
        }
      }
    }
  }
};

struct Nodes {
  template <class T>
  SOBGNN_INLINE static void run(const Attention<T> *given, int64_t begin_node, int64_t end_node, const T *log_sum,
                                const T *to_out, const T *to_moment, const T *average, T *to_key, T *to_source,
                                T *to_value) {
    const Attention<T> &a = *given;
    const int64_t size = a.heads * a.channels;
    for (int64_t j = begin_node; j < end_node; ++j) {
      const int64_t first = j * a.heads;
      std::fill_n(to_value + j * size, size, T(0));
      if (a.kind == 2)
        std::fill_n(to_key + j * size, size, T(0));
      else
        std::fill_n(to_source + first, a.heads, T(0));
      for (int64_t e = a.indptr[j]; e < a.indptr[j + 1]; ++e) {
        const T w = a.weight[e];
        for (int64_t h = 0; h < a.heads; ++h) {
          const int64_t row = a.other[e] * a.heads + h, node = first + h;
          const T *const gradient = to_out + row * a.channels;
          const Score<T> s = score(a, h, row, node, w);
          const T share = std::exp(s.value - log_sum[row]);
          const T to_share = dot(gradient, a.value + node * a.channels, a.channels) + to_moment[row] * w;
          const T inner = share * (to_share - average[row]) * s.slope;
          add(to_value + node * a.channels, share, gradient, a.channels);
          if (a.kind == 0) {
            to_source[node] += inner;
          } else if (a.kind == 1) {
            const T to_product = inner * (a.target[row] + a.source[node]) * s.gate * (1 - s.gate);
            to_source[node] += inner * s.gate;
            add(to_value + node * a.channels, to_product, a.query + row * a.channels, a.channels);
          } else {
            add(to_key + node * a.channels, inner, a.query + row * a.channels, a.channels);
          }
        }
      }
    }
  }
};

// Body over all rows, in parts of a few that the threads share.
template <class Body, class T, class... A> void over_rows(const Attention<T> &a, int threads, A... arguments) {
  sobgnn::for_each_part((a.rows + part_rows - 1) / part_rows, threads, [&](int64_t part) {
    const int64_t begin = part * part_rows, end = std::min(a.rows, begin + part_rows);
    sobgnn::dispatch<Body>(&a, begin, end, arguments...);
  });
}

}  // namespace

#define TERMS(T)                                                                                                     \
  const int64_t *indptr, const int32_t *other, const float *weight, const T *query, const T *key, const T *target,   \
      const T *source, const T *edge, const T *value
#define SIZES int64_t rows, int64_t heads, int64_t channels, int kind, double slope, int threads
#define GIVEN(T)                                                                                                     \
  Attention<T> {                                                                                                     \
    indptr, other, weight, query, key, target, source, edge, value, rows, heads, channels, kind, T(slope),           \
        T(1 / std::sqrt(double(channels)))                                                                           \
  }

#define DEFINE(T, NAME)                                                                                              \
  SOBGNN_EXPORT void sobgnn_attend_##NAME(TERMS(T), T *out, T *moment, T *log_sum, SIZES) {                          \
    over_rows<Forward>(GIVEN(T), threads, out, moment, log_sum);                                                     \
  }                                                                                                                  \
  SOBGNN_EXPORT void sobgnn_attend_rows_##NAME(TERMS(T), const T *out, const T *moment, const T *log_sum,            \
                                               const T *to_out, const T *to_moment, T *average, T *to_query,         \
                                               T *to_target, T *to_edge, SIZES) {                                    \
    over_rows<Rows>(GIVEN(T), threads, out, moment, log_sum, to_out, to_moment, average, to_query, to_target,        \
                    to_edge);                                                                                        \
  }                                                                                                                  \
  SOBGNN_EXPORT void sobgnn_attend_nodes_##NAME(TERMS(T), const T *log_sum, const T *to_out, const T *to_moment,     \
                                                const T *average, T *to_key, T *to_source, T *to_value, SIZES) {     \
    over_rows<Nodes>(GIVEN(T), threads, log_sum, to_out, to_moment, average, to_key, to_source, to_value);           \
  }

DEFINE(float, f32)
DEFINE(double, f64)
