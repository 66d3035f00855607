// Scales of nodes from the weights of their rows, and back. For a row of weights w, self-loop epsilon and exponent h,
//
//   q = max(epsilon, max w)^(-1/2), rounded to 12 bits;  d_a = sum (w q^2)^a + (epsilon q^2)^a;  t_a = d_a^h
//
// forward   scale = q, t_1 .. t_alpha; zeros where a row has neither weights nor a self-loop
// backward  grad_w = sum_a h a (w q^2)^a / w  d_a^(h-1) grad_t_a, and for epsilon likewise, one number per row;
//           q is a constant: the operators do not depend on it.
//
// Sums are in float64. A row is one thread's, so the number of threads does not change a bit.

#include <algorithm>
#include <cmath>
#include <cstdint>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int64_t block = 1024;  // rows that a thread takes at a time

double round_to_12_bits(double value) {
  int exponent;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(mantissa * 4096) / 4096, exponent);
}

template <class W, class T>
void forward(const int64_t *indptr, const W *weight, int64_t begin, int64_t end, int64_t alpha, double epsilon,
             double exponent, T *scale) {
  for (int64_t row = begin; row < end; ++row) {
    T *const out = scale + row * (alpha + 1);
    double most = epsilon;
    for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) most = std::max(most, double(weight[e]));
    std::fill(out, out + alpha + 1, T(0));
    if (!(most > 0)) continue;
    const double q = round_to_12_bits(1 / std::sqrt(most)), square = q * q;
    out[0] = T(q);
    double loop = 1;
    for (int64_t first = 1; first <= alpha; first += 4) {  // four orders a pass: independent chains of additions
      double sum[4] = {0, 0, 0, 0};
      for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
        const double base = double(weight[e]) * square;
        double power = first == 1 ? base : std::pow(base, double(first));
        for (int a = 0; a < 4; ++a, power *= base) sum[a] += power;
      }
      for (int64_t a = 0; a < 4 && first + a <= alpha; ++a) {
        loop *= epsilon * square;
        out[first + a] = T(std::pow(sum[a] + loop, exponent));
      }
    }
  }
}

template <class W, class T>
void backward(const int64_t *indptr, const W *weight, const T *scale, const T *grad, int64_t begin, int64_t end,
              int64_t alpha, double epsilon, double exponent, W *to_weight, double *to_epsilon) {
  for (int64_t row = begin; row < end; ++row) {
    const T *const t = scale + row * (alpha + 1), *const g = grad + row * (alpha + 1);
    const double square = double(t[0]) * double(t[0]);
    // Horner's rule over the orders; d^(h-1) is t^((h-1)/h).
    const auto slope = [&](double w) {
      double total = 0;
      for (int64_t a = alpha; a >= 1; --a) {
        const double share = t[a] > T(0) ? exponent * a * std::pow(double(t[a]), (exponent - 1) / exponent) * g[a] : 0;
        total = (total + share) * (w * square);
      }
      return total / w;
    };
    double shares[16];
    const bool few = alpha <= 16;
    for (int64_t a = 1; few && a <= alpha; ++a)
      shares[a - 1] =
          t[a] > T(0) ? exponent * a * std::pow(double(t[a]), (exponent - 1) / exponent) * double(g[a]) : 0;
    for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
      const double w = double(weight[e]), base = w * square;
      if (few) {
        double total = 0;
        for (int64_t a = alpha - 1; a >= 0; --a) total = (total + shares[a]) * base;
        to_weight[e] = W(total / w);
      } else {
        to_weight[e] = W(slope(w));
      }
    }
    to_epsilon[row] = epsilon > 0 ? slope(epsilon) : 0.0;
  }
}

}  // namespace

#define DEFINE(W, T, NAME)                                                                                          \
  EXPORT void sobgnn_scales_##NAME(const int64_t *indptr, const W *weight, int64_t rows, int64_t alpha,             \
                                   double epsilon, double exponent, T *scale, int threads) {                        \
    const int64_t blocks = (rows + block - 1) / block;                                                              \
    _Pragma("omp parallel for schedule(dynamic, 1) num_threads(threads) if (blocks > 1)")                           \
    for (int64_t b = 0; b < blocks; ++b)                                                                            \
      forward(indptr, weight, b *block, std::min((b + 1) * block, rows), alpha, epsilon, exponent, scale);          \
  }                                                                                                                 \
  EXPORT void sobgnn_scales_backward_##NAME(const int64_t *indptr, const W *weight, const T *scale, const T *grad,  \
                                            int64_t rows, int64_t alpha, double epsilon, double exponent,           \
                                            W *to_weight, double *to_epsilon, int threads) {                        \
    const int64_t blocks = (rows + block - 1) / block;                                                              \
    _Pragma("omp parallel for schedule(dynamic, 1) num_threads(threads) if (blocks > 1)")                           \
    for (int64_t b = 0; b < blocks; ++b)                                                                            \
      backward(indptr, weight, scale, grad, b *block, std::min((b + 1) * block, rows), alpha, epsilon, exponent,    \
               to_weight, to_epsilon);                                                                              \
  }

DEFINE(float, float, f32)
DEFINE(double, double, f64)
