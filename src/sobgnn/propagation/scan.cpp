// The nearest of groups of points: products, and the selection of the smallest distances.
//
//   score(q, y) = |y|^2 - 2 x_q . y          for every query q and point y of a group
//
// Each query keeps its m smallest scores in a heap whose root is the largest. A query is in at most one group, and a
// group is one thread's, so the number of threads does not change a bit.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "targets.h"

namespace {

constexpr int rows = 12;              // queries against one vector of points: as many as there are registers for
constexpr int64_t packed_most = 256;  // points whose columns lie side by side in the cache

// Vectors by their number of entries; written out, since compilers lose attributes that depend on a template's argument.
template <int lanes> struct Vectors;
#define VECTORS(LANES)                                              \
  template <> struct Vectors<LANES> {                               \
    typedef float Floats __attribute__((vector_size(4 * LANES)));   \
    typedef int32_t Flags __attribute__((vector_size(4 * LANES)));  \
  };
VECTORS(4)
VECTORS(8)
VECTORS(16)
typedef double Doubles __attribute__((vector_size(64)));

struct Groups {
  const float *points, *squares, *queries;
  const int64_t *point_span, *query_span;  // first and end of each group's part of a list
  const int32_t *point_list, *query_list;
  float *scores;
  int32_t *found;
  int64_t width, most;
};

// Replace the root of a heap by a smaller score.
inline void replace(float *scores, int32_t *found, int64_t most, float score, int32_t name) {
  int64_t at = 0;
  for (int64_t child = 1; child < most; child = 2 * at + 1) {
    child += child + 1 < most && scores[child + 1] > scores[child];
    if (scores[child] <= score) break;
    scores[at] = scores[child];
    found[at] = found[child];
    at = child;
  }
  scores[at] = score;
  found[at] = name;
}

// `lanes` points to a vector: the processor's own width, since wider ones would be kept in memory.
template <int lanes> struct Scan {
  using Floats = typename Vectors<lanes>::Floats;
  using Flags = typename Vectors<lanes>::Flags;

  SOBGNN_INLINE static bool any(const Flags &flags) {
    int64_t words[lanes / 2], all = 0;
    __builtin_memcpy(words, &flags, sizeof words);
    for (int w = 0; w < lanes / 2; ++w) all |= words[w];
    return all;
  }

  SOBGNN_INLINE static void tile(const float *const *x, const float *packed, int64_t width, const Floats &squares,
                                 Floats *scores) {
    Floats sums[rows] = {};
    for (int64_t t = 0; t < width; ++t) {
      Floats y;
      __builtin_memcpy(&y, packed + t * lanes, sizeof y);
      for (int i = 0; i < rows; ++i) sums[i] += y * x[i][t];
    }
    for (int i = 0; i < rows; ++i) scores[i] = squares - 2.0f * sums[i];
  }

  SOBGNN_INLINE static void run(const Groups *groups, int64_t group, float *packed) {
    const Groups &own = *groups;
    const int64_t width = own.width, most = own.most;
    const int64_t *const span = own.point_span + 2 * group, *const asking = own.query_span + 2 * group;
    const int32_t *const list = own.point_list + span[0], *const asked = own.query_list + asking[0];
    const int64_t points = span[1] - span[0], queries = asking[1] - asking[0];
    Floats squares[packed_most / lanes];
    for (int64_t first = 0; queries && first < points; first += packed_most) {
      const int64_t count = std::min(packed_most, points - first), blocks = (count + lanes - 1) / lanes;
      for (int64_t b = 0; b < blocks; ++b) {
        const float *y[lanes];
        for (int l = 0; l < lanes; ++l) {
          const int64_t at = first + std::min(b * lanes + l, count - 1);
          y[l] = own.points + int64_t(list[at]) * width;
          // What fills the last block is infinitely far.
          squares[b][l] = b * lanes + l < count ? own.squares[list[at]] : std::numeric_limits<float>::infinity();
        }
        float *const out = packed + b * width * lanes;
        for (int64_t t = 0; t < width; ++t)
          for (int l = 0; l < lanes; ++l) out[t * lanes + l] = y[l][t];
      }
      for (int64_t q = 0; q < queries; q += rows) {
        const int64_t some = std::min<int64_t>(rows, queries - q);
        const float *x[rows];
        for (int i = 0; i < rows; ++i) x[i] = own.queries + int64_t(asked[q + std::min<int64_t>(i, some - 1)]) * width;
        for (int64_t b = 0; b < blocks; ++b) {
          Floats scores[rows];
          tile(x, packed + b * width * lanes, width, squares[b], scores);
          for (int i = 0; i < some; ++i) {
            float *const kept = own.scores + int64_t(asked[q + i]) * most;
            if (!any(scores[i] < kept[0])) continue;
            int32_t *const names = own.found + int64_t(asked[q + i]) * most;
            for (int l = 0; l < lanes; ++l)
              if (scores[i][l] < kept[0]) replace(kept, names, most, scores[i][l], list[first + b * lanes + l]);
          }
        }
      }
    }
  }
};

// Squared distances of queries to the points in their rows of `list`, from differences in double.
template <class T> struct Measure {
  SOBGNN_INLINE static void load(const T *x, Doubles &out) {
    for (int l = 0; l < 8; ++l) out[l] = double(x[l]);
  }

  SOBGNN_INLINE static void run(const T *points, const T *queries, const int32_t *list, double *out, int64_t width,
                                int64_t most, int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) {
      const T *const x = queries + q * width;
      for (int64_t c = 0; c < most; ++c) {
        const T *const y = points + int64_t(list[q * most + c]) * width;
        Doubles sums = {};
        int64_t t = 0;
        for (; t + 8 <= width; t += 8) {
          Doubles gap, other;
          load(x + t, gap);
          load(y + t, other);
          gap -= other;
          sums += gap * gap;
        }
        double sum = 0;
        for (int l = 0; l < 8; ++l) sum += sums[l];
        for (; t < width; ++t) {
          const double gap = double(x[t]) - double(y[t]);
          sum += gap * gap;
        }
        out[q * most + c] = sum;
      }
    }
  }
};

void scan_group(const Groups *groups, int64_t group, float *packed) {
  const int level = sobgnn::level();
  if (level == sobgnn::avx512_level) return sobgnn::dispatch<Scan<16>>(groups, group, packed);
  if (level == sobgnn::avx2_level) return sobgnn::dispatch<Scan<8>>(groups, group, packed);
  sobgnn::dispatch<Scan<4>>(groups, group, packed);
}

}  // namespace

// points [., width], their squared lengths [.], queries [M, width]; the points and queries of each group as spans
// [groups, 2] of lists; scores and found [M, most] are heaps, updated in place.
SOBGNN_EXPORT void sobgnn_scan_f32(const float *points, const float *squares, const float *queries,
                                   const int64_t *point_span, const int32_t *point_list, const int64_t *query_span,
                                   const int32_t *query_list, float *scores, int32_t *found, int64_t groups,
                                   int64_t width, int64_t most, int threads) {
  const Groups all = {points,     squares, queries, point_span, query_span, point_list,
                      query_list, scores,  found,   width,      most};
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#else
  (void)threads;
#endif
  {
    std::vector<float> packed(packed_most * width);
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 1)
#endif
    for (int64_t group = 0; group < groups; ++group) scan_group(&all, group, packed.data());
  }
}

// points [., width], queries [M, width], list [M, most]; out [M, most].
#define DEFINE(T, NAME)                                                                                              \
  SOBGNN_EXPORT void sobgnn_measure_##NAME(const T *points, const T *queries, const int32_t *list, double *out,      \
                                           int64_t rows, int64_t width, int64_t most, int threads) {                 \
    sobgnn::for_each_block(rows, 1024, threads, [&](int64_t begin, int64_t end) {                                    \
      sobgnn::dispatch<Measure<T>>(points, queries, list, out, width, most, begin, end);                             \
    });                                                                                                              \
  }

DEFINE(float, f32)
DEFINE(double, f64)
