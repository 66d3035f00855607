// Scales of nodes from the weights of their rows, and back. For a row of weights w and the self-loop epsilon,
//
//   symmetric  q = max(epsilon, max w)^(-1/2),  r = w q^2,  t_a = d_a^(-1/2)        with d_a = sum r^a + loop^a
//   by rows    q = max(epsilon, max w)^(-1),    r = w q,    t_a = d_a^(-1)          and q rounded to 12 bits
//
// forward   scale = q, t_1 .. t_alpha; zeros where a row has neither weights nor a self-loop
// backward  to_w = sum_a d t_a / d d_a  a r^a / w  grad_t_a; q is a constant, since the operators do not depend on it
//
// Sums are in float64. A row is one thread's, so the number of threads does not change a bit.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "targets.h"

namespace {

constexpr int64_t block = 1024;  // rows that a thread takes at a time

double round_to_12_bits(double value) {
  int exponent;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(mantissa * 4096) / 4096, exponent);
}

template <class T>
void forward(const int64_t *indptr, const T *weight, int64_t begin, int64_t end, int64_t alpha, double epsilon,
             bool by_rows, T *scale) {
  for (int64_t row = begin; row < end; ++row) {
    T *const out = scale + row * (alpha + 1);
    std::fill(out, out + alpha + 1, T(0));
    double most = epsilon;
    for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) most = std::max(most, double(weight[e]));
    if (!(most > 0)) continue;
    const double q = round_to_12_bits(by_rows ? 1 / most : 1 / std::sqrt(most)), factor = by_rows ? q : q * q;
    out[0] = T(q);
    double loop = 1;
    for (int64_t first = 1; first <= alpha; first += 4) {  // four orders at once: independent chains of additions
      double sum[4] = {0, 0, 0, 0};
      for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
        const double base = double(weight[e]) * factor;
        double power = first == 1 ? base : std::pow(base, double(first));
        for (int a = 0; a < 4; ++a, power *= base) sum[a] += power;
      }
      for (int64_t a = 0; a < 4 && first + a <= alpha; ++a) {
        loop *= epsilon * factor;
        const double degree = sum[a] + loop;
        out[first + a] = T(by_rows ? 1 / degree : 1 / std::sqrt(degree));
      }
    }
  }
}

template <class T>
void backward(const int64_t *indptr, const T *weight, const T *scale, const T *grad, int64_t begin, int64_t end,
              int64_t alpha, bool by_rows, T *to_weight) {
  std::vector<double> shares(alpha);
  for (int64_t row = begin; row < end; ++row) {
    const T *const t = scale + row * (alpha + 1), *const g = grad + row * (alpha + 1);
    const double q = double(t[0]), factor = by_rows ? q : q * q;
    for (int64_t a = 1; a <= alpha; ++a) {
      const double value = double(t[a]);
      const double slope = by_rows ? -value * value : -0.5 * value * value * value;
      shares[a - 1] = slope * double(a) * double(g[a]);
    }
    // Horner's rule for some entries at a time, in the weights' own type: the compiler takes many at once.
    for (int64_t from = indptr[row]; from < indptr[row + 1]; from += 64) {
      const int64_t count = std::min<int64_t>(64, indptr[row + 1] - from);
      const T *const w = weight + from;
      T total[64] = {};
      for (int64_t a = alpha; a-- > 0;) {
        const T share = T(shares[a]), scale_of_row = T(factor);
        for (int64_t e = 0; e < count; ++e) total[e] = (total[e] + share) * (w[e] * scale_of_row);
      }
      for (int64_t e = 0; e < count; ++e) to_weight[from + e] = total[e] / w[e];
    }
  }
}

}  // namespace

#define DEFINE(T, NAME)                                                                                               \
  SOBGNN_EXPORT void sobgnn_scales_##NAME(const int64_t *indptr, const T *weight, T *scale, int64_t rows,             \
                                          int64_t alpha, double epsilon, int by_rows, int threads) {                  \
    sobgnn::for_each_block(rows, block, threads, [&](int64_t begin, int64_t end) {                                    \
      forward(indptr, weight, begin, end, alpha, epsilon, by_rows != 0, scale);                                       \
    });                                                                                                               \
  }                                                                                                                   \
  SOBGNN_EXPORT void sobgnn_scales_backward_##NAME(const int64_t *indptr, const T *weight, const T *scale,            \
                                                   const T *grad, T *to_weight, int64_t rows, int64_t alpha,          \
                                                   int by_rows, int threads) {                                        \
    sobgnn::for_each_block(rows, block, threads, [&](int64_t begin, int64_t end) {                                    \
      backward(indptr, weight, scale, grad, begin, end, alpha, by_rows != 0, to_weight);                              \
    });                                                                                                               \
  }

DEFINE(float, f32)
DEFINE(double, f64)
