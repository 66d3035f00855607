// What weights change in the loss, in one pass over the pattern. Part of native.cpp, once for each instruction set.
//
// With g[i,a] the gradient of out[i,a], for the entry e = (i, j) of weight w
//
//   weight[e] = sum_a a (w q_i q_j)^a t_out[i,a] t_in[j,a] (g[i,a] . x[j]) / w      or x[j,a], where x has orders
//
// The rows of g stay in registers. Their sum with an entry's coefficients comes first, so that an entry takes one
// product with x and one sum over lanes, which four entries share. A row is one thread's.

// The orders first .. first + A - 1 of the rows [begin, end).
template <class T, int A, bool IN>
TARGET void gradient_orders(const Problem<T> &p, const Gradient<T> &d, int64_t begin, int64_t end, int64_t first) {
  constexpr int W = BYTES / sizeof(T), U = 4;
  constexpr int V = 4 * (A + 1) + U <= REGISTERS ? 4 : 2 * (A + 1) + U <= REGISTERS ? 2 : 1;
  using vector = typename Vector<T, W>::type;
  const int64_t columns = p.alpha + 1, width = p.width, stride = IN ? p.alpha * width : width;
  const auto fill = p.wide ? coefficients<T, int64_t, A> : coefficients<T, int32_t, A>;
  const T *const x = p.x + (IN ? (first - 1) * width : 0);
  const Prefetch<T> prefetch = {reinterpret_cast<const char *>(x), stride * int64_t(sizeof(T)),
                            std::min<int64_t>((IN ? A : 1) * width * int64_t(sizeof(T)), 1024), p.column_scale, columns};
  alignas(line) T coefficient[chunk * A];
  alignas(line) int64_t position[chunk];
  alignas(line) T value[chunk + U];

  for (int64_t row = begin; row < end; ++row) {
    const int64_t last = p.indptr[row + 1];
    const T *const scale = p.row_scale + row * columns + first;
    const T *const g = d.grad + (row * p.alpha + first - 1) * width;
    for (int64_t from = p.indptr[row]; from < last; from += chunk) {
      const int64_t count = std::min<int64_t>(chunk, last - from);
      fill(p, row, from, from + count, last, first, stride, coefficient, position);
      const auto block = [&](auto vectors, auto ahead, auto more, int64_t column) TARGET ALWAYS {
        constexpr int size = decltype(vectors)::value;
        vector own[A][size];
#pragma GCC unroll 8
        for (int a = 0; a < A; ++a)
#pragma GCC unroll 8
          for (int v = 0; v < size; ++v)
            own[a][v] = (T(first + a) * scale[a]) * *reinterpret_cast<const vector *>(g + a * width + column + v * W);
        for (int64_t e = 0; e < count; e += U) {
          vector product[U];
#pragma GCC unroll 4
          for (int u = 0; u < U; ++u) {
            const int64_t at = std::min(e + u, count - 1);  // past the end the last once more, for nothing
            if constexpr (decltype(ahead)::value)
              prefetch(p.index(std::min(from + at + distance, p.indptr[p.rows] - 1)));
            const T *const source = x + position[at] + column;
            product[u] = vector{};
#pragma GCC unroll 8
            for (int v = 0; v < size; ++v) {
              if constexpr (IN) {
#pragma GCC unroll 8
                for (int a = 0; a < A; ++a)
                  product[u] += (coefficient[place<T, A>(at, a)] * own[a][v]) *
                                *reinterpret_cast<const vector *>(source + a * width + v * W);
              } else {
                vector sum = coefficient[place<T, A>(at, 0)] * own[0][v];
#pragma GCC unroll 8
                for (int a = 1; a < A; ++a) sum += coefficient[place<T, A>(at, a)] * own[a][v];
                product[u] += sum * *reinterpret_cast<const vector *>(source + v * W);
              }
            }
          }
          sum_lanes<T, U>(product, value + e, decltype(more)::value);
        }
      };
      const auto blocks = [&](auto vectors, int64_t column) TARGET ALWAYS {
        if (column > 0)
          block(vectors, std::false_type(), std::true_type(), column);
        else if (p.scattered)
          block(vectors, std::true_type(), std::false_type(), column);
        else
          block(vectors, std::false_type(), std::false_type(), column);
      };
      int64_t column = 0;
      for (; column + V * W <= width; column += V * W) blocks(std::integral_constant<int, V>(), column);
      if constexpr (V > 2)
        if (column + 2 * W <= width) blocks(std::integral_constant<int, 2>(), column), column += 2 * W;
      if constexpr (V > 1)
        for (; column < width; column += W) blocks(std::integral_constant<int, 1>(), column);
      T *const target = d.weight + from;
      for (int64_t e = 0; e < count; ++e) value[e] /= p.weight_at(from + e);
      if (first > 1)
        for (int64_t e = 0; e < count; ++e) target[e] += value[e];
      else
        std::copy(value, value + count, target);
    }
  }
}

// The rows [begin, end).
template <class T> TARGET void gradient(const Problem<T> &p, const Gradient<T> &d, int64_t begin, int64_t end) {
  by_group(p.alpha, [&](auto count, int64_t first) TARGET ALWAYS {
    if (p.orders_in)
      gradient_orders<T, decltype(count)::value, true>(p, d, begin, end, first);
    else
      gradient_orders<T, decltype(count)::value, false>(p, d, begin, end, first);
  });
}

// out[i] = x[i] . y[i] for the rows [begin, end), of whole cache lines each.
template <class T> TARGET void row_dots(const T *x, const T *y, T *out, int64_t width, int64_t begin, int64_t end) {
  constexpr int W = BYTES / sizeof(T);
  using vector = typename Vector<T, W>::type;
  for (int64_t row = begin; row < end; ++row) {
    vector sum[1] = {};
    for (int64_t c = row * width; c < (row + 1) * width; c += W)
      sum[0] += *reinterpret_cast<const vector *>(x + c) * *reinterpret_cast<const vector *>(y + c);
    alignas(line) T total[4];
    sum_lanes<T, 1>(sum, total, false);
    out[row] = total[0];
  }
}
