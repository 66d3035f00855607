// Runs the kernels on numbers from a file, for compilers and processors that have no Python here: `harness IN OUT`.
//
// IN holds int64 [rows, inputs, alpha, width, entries, threads], then the SobolevCSR (indptr, indices int32, weight float;
// the same of its transpose; row_scale, column_scale; epsilon) and x [inputs, width], g [inputs, alpha, width], all
// double unless said otherwise. OUT gets, in float and then in double and all as double: propagate(x),
// propagate_sum(g), propagate_each(g).

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define DECLARE(T, NAME)                                                                                          \
  extern "C" void sobgnn_propagate_##NAME(int, int, int64_t, int64_t, int64_t, int64_t, const int64_t *,          \
                                          const void *, int, const void *, const int64_t *, const void *, int,    \
                                          const void *, int, const T *, const T *, double, const T *, T *,        \
                                          const T *, T *, int, int);
DECLARE(float, f32)
DECLARE(double, f64)
extern "C" int sobgnn_level();

static std::FILE *in, *out;

template <class T> std::vector<T> read(int64_t count) {
  std::vector<T> values(count);
  if (int64_t(std::fread(values.data(), sizeof(T), count, in)) != count) std::exit(3);
  return values;
}

template <class T> void write(const std::vector<T> &values) {
  const std::vector<double> wide(values.begin(), values.end());
  std::fwrite(wide.data(), sizeof(double), wide.size(), out);
}

template <class T> std::vector<T> as(const std::vector<double> &values) { return {values.begin(), values.end()}; }

int main(int count, char **names) {
  if (count != 3 || !(in = std::fopen(names[1], "rb")) || !(out = std::fopen(names[2], "wb"))) return 2;
  const std::vector<int64_t> sizes = read<int64_t>(6);
  const int64_t rows = sizes[0], inputs = sizes[1], alpha = sizes[2], width = sizes[3], entries = sizes[4];
  const int threads = int(sizes[5]);
  const auto indptr = read<int64_t>(rows + 1);
  const auto indices = read<int32_t>(entries);
  const auto weight = read<float>(entries);
  const auto t_indptr = read<int64_t>(inputs + 1);
  const auto t_indices = read<int32_t>(entries);
  const auto t_weight = read<float>(entries);
  const auto row_scale = read<double>(rows * (alpha + 1)), column_scale = read<double>(inputs * (alpha + 1));
  const double epsilon = read<double>(1)[0];
  const auto x = read<double>(inputs * width), g = read<double>(inputs * alpha * width);
  const int64_t wide = alpha * width;

#define RUN(T, NAME)                                                                                                  \
  {                                                                                                                   \
    const std::vector<T> q = as<T>(row_scale), r = as<T>(column_scale), h = as<T>(x), k = as<T>(g);                       \
    const auto propagate = [&](bool orders_in, bool orders_out, const std::vector<T> &from) {                         \
      std::vector<T> to(rows * (orders_out ? wide : width));                                                          \
      sobgnn_propagate_##NAME(orders_in, orders_out, rows, inputs, alpha, width, indptr.data(), indices.data(), 0,    \
                              weight.data(), t_indptr.data(), t_indices.data(), 0, t_weight.data(), 0, q.data(),      \
                              r.data(), epsilon, from.data(), to.data(), nullptr, nullptr, threads, 3);               \
      write(to);                                                                                                      \
    };                                                                                                                \
    propagate(false, true, h);                                                                                        \
    propagate(true, false, k);                                                                                        \
    propagate(true, true, k);                                                                                         \
  }
  RUN(float, f32)
  RUN(double, f64)
  std::printf("%d\n", sobgnn_level());
  return std::fclose(out);
}
