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

#include "targets.h"

namespace {

constexpr int64_t parts = 32;

int64_t bound(int64_t rows, int64_t part) { return rows * part / parts; }

struct Forward {
  template <class T>
  SOBGNN_INLINE static void run(T *rows, const T *bias, const T *mu, T *sums, int64_t count, int64_t width, bool relu,
                                bool first) {
    for (int64_t i = 0; i < count; ++i) {
      T *__restrict p = rows + i * width, *__restrict out = sums + i * width;
      const T *__restrict b = bias, *__restrict m = mu;
      if (relu)
        for (int64_t c = 0; c < width; ++c) p[c] = std::max(p[c] + b[c], T(0));
      else
        for (int64_t c = 0; c < width; ++c) p[c] += b[c];
      if (first)
        for (int64_t c = 0; c < width; ++c) out[c] = m[c] * p[c];
      else
        for (int64_t c = 0; c < width; ++c) out[c] += m[c] * p[c];
    }
  }
};

struct Backward {
  template <class T>
  SOBGNN_INLINE static void run(const T *rows, const T *grads, const T *mu, T *results, T *to_bias, T *to_mu,
                                int64_t count, int64_t width, bool relu) {
    for (int64_t i = 0; i < count; ++i) {
      const T *__restrict p = rows + i * width, *__restrict g = grads + i * width, *__restrict m = mu;
      T *__restrict grad_p = results + i * width, *__restrict grad_bias = to_bias, *__restrict grad_mu = to_mu;
      if (relu)
        for (int64_t c = 0; c < width; ++c) grad_p[c] = p[c] > T(0) ? m[c] * g[c] : T(0);
      else
        for (int64_t c = 0; c < width; ++c) grad_p[c] = m[c] * g[c];
      for (int64_t c = 0; c < width; ++c) {
        grad_bias[c] += grad_p[c];
        grad_mu[c] += g[c] * p[c];
      }
    }
  }
};

struct Drop {
  template <class T>
  SOBGNN_INLINE static void run(const T *values, const uint32_t *rows, const uint32_t *columns, T *results,
                                int64_t count, int64_t width, int32_t threshold, T scale) {
    for (int64_t i = 0; i < count; ++i) {
      const T *__restrict h = values + i * width;
      const uint32_t *__restrict column = columns;
      const uint32_t row = rows[i];
      T *__restrict out = results + i * width;
      for (int64_t c = 0; c < width; ++c) {
        uint32_t draw = (row ^ column[c]) * 0x7FEB352Du;
        draw = (draw ^ (draw >> 15)) * 0x846CA68Bu;
        out[c] = h[c] * (int32_t(draw) >= threshold ? scale : T(0));
      }
    }
  }
};

template <class T>
void forward(T *p, const T *bias, const T *mu, T *out, int64_t rows, int64_t width, bool relu, bool first,
             int threads) {
  sobgnn::for_each_part(parts, threads, [&](int64_t part) {
    const int64_t begin = bound(rows, part), end = bound(rows, part + 1);
    sobgnn::dispatch<Forward>(p + begin * width, bias, mu, out + begin * width, end - begin, width, relu, first);
  });
}

template <class T>
void backward(const T *p, const T *g, const T *mu, T *grad_p, T *grad_bias, T *grad_mu, int64_t rows, int64_t width,
              bool relu, int threads) {
  std::vector<T> sums(2 * parts * width, T(0));
  sobgnn::for_each_part(parts, threads, [&](int64_t part) {
    const int64_t begin = bound(rows, part), end = bound(rows, part + 1);
    T *const own = sums.data() + 2 * part * width;
    sobgnn::dispatch<Backward>(p + begin * width, g + begin * width, mu, grad_p + begin * width, own, own + width,
                               end - begin, width, relu);
  });
  std::fill_n(grad_bias, width, T(0));
  std::fill_n(grad_mu, width, T(0));
  for (int64_t part = 0; part < parts; ++part)
    for (int64_t c = 0; c < width; ++c) {
      grad_bias[c] += sums[2 * part * width + c];
      grad_mu[c] += sums[(2 * part + 1) * width + c];
    }
}

template <class T>
void drop(const T *h, const uint32_t *rows, const uint32_t *columns, T *out, int64_t count, int64_t width,
          int32_t threshold, double scale, int threads) {
  sobgnn::for_each_part(parts, threads, [&](int64_t part) {
    const int64_t begin = bound(count, part), end = bound(count, part + 1);
    sobgnn::dispatch<Drop>(h + begin * width, rows + begin, columns, out + begin * width, end - begin, width,
                           threshold, T(scale));
  });
}

}  // namespace

#define DEFINE(T, NAME)                                                                                               \
  SOBGNN_EXPORT void sobgnn_combine_##NAME(T *p, const T *bias, const T *mu, T *out, int64_t rows, int64_t width,     \
                                           int relu, int first, int threads) {                                        \
    forward<T>(p, bias, mu, out, rows, width, relu != 0, first != 0, threads);                                        \
  }                                                                                                                   \
  SOBGNN_EXPORT void sobgnn_combine_backward_##NAME(const T *p, const T *g, const T *mu, T *grad_p, T *grad_bias,     \
                                                    T *grad_mu, int64_t rows, int64_t width, int relu, int threads) { \
    backward<T>(p, g, mu, grad_p, grad_bias, grad_mu, rows, width, relu != 0, threads);                               \
  }                                                                                                                   \
  SOBGNN_EXPORT void sobgnn_drop_##NAME(const T *h, const uint32_t *rows, const uint32_t *columns, T *out,            \
                                        int64_t count, int64_t width, int32_t threshold, double scale, int threads) { \
    drop<T>(h, rows, columns, out, count, width, threshold, scale, threads);                                          \
  }

DEFINE(float, f32)
DEFINE(double, f64)

// The level in use: 3 AVX-512, 2 AVX2, 1 plain.
SOBGNN_EXPORT int sobgnn_level() { return sobgnn::level(); }
