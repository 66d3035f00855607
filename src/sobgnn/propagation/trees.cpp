// Decision trees: rows walk from each root to a leaf, and the leaves' values are added up.
//
//   out[m, c] = sum_t value[leaf_t(x_m), c]                    forests, a value for each class
//   out[m, target[t]] += value[leaf_t(x_m), 0] for all t       boosting, a value for one class
//
// A walk goes left where the column is at most the threshold. Trees are added in their order and a row is one thread's,
// so the number of threads does not change a bit.

#include <algorithm>
#include <cstdint>

#include "targets.h"

namespace {

constexpr int64_t block = 64;  // rows that walk a tree while its nodes are in the cache
constexpr int side = 8;        // walks that wait for memory together

struct Nodes {
  const int32_t *column, *left, *right;
  const double *threshold;
};

// The leaves that rows first .. first + count reach from a root.
inline void walk(const Nodes &nodes, int32_t root, const float *x, int64_t width, int count, int32_t *leaf) {
  int32_t at[side];
  for (int i = 0; i < count; ++i) at[i] = root;
  for (bool going = true; going;) {
    going = false;
    for (int i = 0; i < count; ++i) {
      const int32_t node = at[i], column = nodes.column[node];
      if (column < 0) continue;
      const int32_t left = nodes.left[node], right = nodes.right[node];
      at[i] = double(x[i * width + column]) <= nodes.threshold[node] ? left : right;
      going = true;
    }
  }
  for (int i = 0; i < count; ++i) leaf[i] = nodes.left[at[i]];
}

template <class T>
void add(const Nodes &nodes, const int32_t *root, int64_t trees, const T *value, int64_t values, const int32_t *target,
         const float *x, int64_t width, int64_t begin, int64_t end, double *out, int64_t classes) {
  int32_t leaf[side];
  for (int64_t t = 0; t < trees; ++t) {
    for (int64_t first = begin; first < end; first += side) {
      const int count = int(std::min<int64_t>(side, end - first));
      walk(nodes, root[t], x + first * width, width, count, leaf);
      for (int i = 0; i < count; ++i) {
        double *const row = out + (first + i) * classes;
        const T *const own = value + leaf[i] * values;
        if (target) {
          row[target[t]] += double(own[0]);
        } else {
          for (int64_t c = 0; c < values; ++c) row[c] += double(own[c]);
        }
      }
    }
  }
}

}  // namespace

// x [rows, width]; column, threshold, left, right [nodes]; root [trees]; value [leaves, values]; target [trees] or null;
// out [rows, classes] is added to.
#define DEFINE(T, NAME)                                                                                              \
  SOBGNN_EXPORT void sobgnn_walk_##NAME(const float *x, const int32_t *column, const double *threshold,              \
                                        const int32_t *left, const int32_t *right, const int32_t *root,              \
                                        const T *value, const int32_t *target, double *out, int64_t rows,            \
                                        int64_t width, int64_t trees, int64_t values, int64_t classes, int threads) { \
    const Nodes nodes = {column, left, right, threshold};                                                            \
    sobgnn::for_each_block(rows, block, threads, [&](int64_t begin, int64_t end) {                                   \
      add(nodes, root, trees, value, values, target, x, width, begin, end, out, classes);                            \
    });                                                                                                              \
  }

DEFINE(float, f32)
DEFINE(double, f64)
