// The end of a layer in one pass over memory: bias, ReLU, weighted sum over the filters; and its adjoint.
//
// forward   p <- relu(p + bias),  out <- [out +] mu p                         p, out [rows, width]; bias, mu [width]
// backward  grad_p = mu g where p > 0,  grad_bias = sum over rows of grad_p,  grad_mu = sum over rows of g p
//
// drop      out = h / (1 - rate) where the mix of its row's and its column's bits is at least the threshold, else 0
//
// Rows are summed in a fixed number of parts, which are then added in order: the number of threads does not change
// a bit.

#include <algorithm>
#include <cstdint>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif
#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int64_t parts = 32;

int64_t bound(int64_t rows, int64_t part) { return rows * part / parts; }

}  // namespace

// One definition per type: target clones and templates do not go together.
#define DEFINE(T, NAME)                                                                                              \
  CLONES static void forward_rows_##NAME(T *rows, const T *__restrict bias, const T *__restrict mu, T *sums,         \
                                         int64_t count, int64_t width, bool relu, bool first) {                      \
    for (int64_t i = 0; i < count; ++i) {                                                                            \
      T *__restrict p = rows + i * width, *__restrict out = sums + i * width;                                        \
      if (relu)                                                                                                      \
        for (int64_t c = 0; c < width; ++c) p[c] = std::max(p[c] + bias[c], T(0));                                   \
      else                                                                                                           \
        for (int64_t c = 0; c < width; ++c) p[c] += bias[c];                                                         \
      if (first)                                                                                                     \
        for (int64_t c = 0; c < width; ++c) out[c] = mu[c] * p[c];                                                   \
      else                                                                                                           \
        for (int64_t c = 0; c < width; ++c) out[c] += mu[c] * p[c];                                                  \
    }                                                                                                                \
  }                                                                                                                  \
  CLONES static void backward_rows_##NAME(const T *rows, const T *grads, const T *__restrict mu, T *results,         \
                                          T *__restrict grad_bias, T *__restrict grad_mu, int64_t count,             \
                                          int64_t width, bool relu) {                                                \
    for (int64_t i = 0; i < count; ++i) {                                                                            \
      const T *__restrict p = rows + i * width, *__restrict g = grads + i * width;                                   \
      T *__restrict grad_p = results + i * width;                                                                    \
      if (relu)                                                                                                      \
        for (int64_t c = 0; c < width; ++c) grad_p[c] = p[c] > T(0) ? mu[c] * g[c] : T(0);                           \
      else                                                                                                           \
        for (int64_t c = 0; c < width; ++c) grad_p[c] = mu[c] * g[c];                                                \
      for (int64_t c = 0; c < width; ++c) {                                                                          \
        grad_bias[c] += grad_p[c];                                                                                   \
        grad_mu[c] += g[c] * p[c];                                                                                   \
      }                                                                                                              \
    }                                                                                                                \
  }                                                                                                                  \
  EXPORT void sobgnn_combine_##NAME(T *p, const T *bias, const T *mu, T *out, int64_t rows, int64_t width, int relu, \
                                    int first, int threads) {                                                        \
    _Pragma("omp parallel for schedule(static) num_threads(threads)") for (int64_t k = 0; k < parts; ++k) {          \
      const int64_t begin = bound(rows, k), end = bound(rows, k + 1);                                                \
      forward_rows_##NAME(p + begin * width, bias, mu, out + begin * width, end - begin, width, relu, first);        \
    }                                                                                                                \
  }                                                                                                                  \
  EXPORT void sobgnn_combine_backward_##NAME(const T *p, const T *g, const T *mu, T *grad_p, T *grad_bias,           \
                                             T *grad_mu, int64_t rows, int64_t width, int relu, int threads) {       \
    std::vector<T> sums(2 * parts * width, T(0));                                                                    \
    _Pragma("omp parallel for schedule(static) num_threads(threads)") for (int64_t k = 0; k < parts; ++k) {          \
      const int64_t begin = bound(rows, k), end = bound(rows, k + 1);                                                \
      T *own = sums.data() + 2 * k * width;                                                                          \
      backward_rows_##NAME(p + begin * width, g + begin * width, mu, grad_p + begin * width, own, own + width,       \
                           end - begin, width, relu);                                                                \
    }                                                                                                                \
    std::fill_n(grad_bias, width, T(0));                                                                             \
    std::fill_n(grad_mu, width, T(0));                                                                               \
    for (int64_t k = 0; k < parts; ++k)                                                                              \
      for (int64_t c = 0; c < width; ++c) {                                                                          \
        grad_bias[c] += sums[2 * k * width + c];                                                                     \
        grad_mu[c] += sums[(2 * k + 1) * width + c];                                                                 \
      }                                                                                                              \
  }

#define DEFINE_DROP(T, NAME)                                                                                         \
  CLONES static void drop_rows_##NAME(const T *values, const uint32_t *rows, const uint32_t *__restrict columns,     \
                                      T *results, int64_t count, int64_t width, int32_t threshold, T scale) {        \
    for (int64_t i = 0; i < count; ++i) {                                                                            \
      const T *__restrict h = values + i * width;                                                                    \
      T *__restrict out = results + i * width;                                                                       \
      for (int64_t c = 0; c < width; ++c) {                                                                          \
        uint32_t draw = (rows[i] ^ columns[c]) * 0x7FEB352Du;                                                        \
        draw = (draw ^ (draw >> 15)) * 0x846CA68Bu;                                                                  \
        out[c] = h[c] * (int32_t(draw) >= threshold ? scale : T(0));                                                 \
      }                                                                                                              \
    }                                                                                                                \
  }                                                                                                                  \
  EXPORT void sobgnn_drop_##NAME(const T *h, const uint32_t *rows, const uint32_t *columns, T *out, int64_t count,   \
                                 int64_t width, int32_t threshold, double scale, int threads) {                      \
    _Pragma("omp parallel for schedule(static) num_threads(threads)") for (int64_t k = 0; k < parts; ++k) {          \
      const int64_t begin = bound(count, k), end = bound(count, k + 1);                                              \
      drop_rows_##NAME(h + begin * width, rows + begin, columns, out + begin * width, end - begin, width, threshold, \
                       T(scale));                                                                                    \
    }                                                                                                                \
  }

DEFINE_DROP(float, f32)
DEFINE_DROP(double, f64)
DEFINE(float, f32)
DEFINE(double, f64)
