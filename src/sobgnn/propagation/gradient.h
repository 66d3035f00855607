// What weights and scales change in the loss, in one pass over the pattern. Part of native.cpp, once for each
// instruction set.
//
// With g[i,a] the gradient of out[i,a], c = (w q_i q_j)^a and dot = g[i,a] . x[j] (or x[j,a], where x has orders),
//
//   weight[e]      = sum_a a c t_out[i,a] t_in[j,a] dot / w                              for the entry e = (i, j)
//   scale_in[j,a]  = sum over the entries of column j of c t_out[i,a] dot
//   scale_out[i,a] = sum over the entries of row i of c t_in[j,a] dot = g[i,a] . out[i,a] / t_out[i,a]
//
// The rows of g stay in registers while the rows of x that they meet are read, as in `scatter`: a thread has a range
// of inputs and takes the entries that fall into it from all rows, in their order. So each number is summed by one
// thread in a fixed order. Column sums are kept in float64, since they grow one entry at a time.

// The sums of the lanes of A vectors, added to as many numbers of `out`, which has room for whole fours.
template <class T, int A, class V> TARGET ALWAYS inline void add_lanes(const V (&value)[A], T *out) {
#if BYTES == 64
  if constexpr (std::is_same<T, float>::value) {
    // Four vectors at once: two rounds interleave them while they halve them, two more add up the quarters.
#pragma GCC unroll 2
    for (int a = 0; a < A; a += 4) {
      const auto get = [&](int i) TARGET ALWAYS {
        return a + i < A ? reinterpret_cast<const __m512 &>(value[a + i < A ? a + i : 0]) : _mm512_setzero_ps();
      };
      const __m512 p = get(0), q = get(1), r = get(2), s = get(3);
      const __m512d pq = _mm512_castps_pd(_mm512_unpacklo_ps(p, q) + _mm512_unpackhi_ps(p, q));
      const __m512d rs = _mm512_castps_pd(_mm512_unpacklo_ps(r, s) + _mm512_unpackhi_ps(r, s));
      const __m512 all = _mm512_castpd_ps(_mm512_unpacklo_pd(pq, rs)) + _mm512_castpd_ps(_mm512_unpackhi_pd(pq, rs));
      const __m256 half = _mm512_castps512_ps256(all) + _mm512_extractf32x8_ps(all, 1);
      const __m128 sums = _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
      _mm_store_ps(out + a, _mm_load_ps(out + a) + sums);
    }
    return;
  }
#endif
  constexpr int W = BYTES / sizeof(T);
#pragma GCC unroll 8
  for (int a = 0; a < A; ++a) {
    T lanes[W];
    *reinterpret_cast<V *>(lanes) = value[a];
#pragma GCC unroll 16
    for (int half = W / 2; half; half /= 2)
#pragma GCC unroll 16
      for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    out[a] += lanes[0];
  }
}

// scale_out for the rows [begin, end).
template <class T> TARGET void row_dots(const Problem<T> &p, const Gradient<T> &d, int64_t begin, int64_t end) {
  constexpr int W = BYTES / sizeof(T);
  using vector = typename Vector<T, W>::type;
  for (int64_t place = begin * p.alpha; place < end * p.alpha; ++place) {
    const T scale = p.scale_out[place / p.alpha * (p.alpha + 1) + 1 + place % p.alpha];
    const T *const g = d.grad + place * p.width, *const y = d.y + place * p.width;
    vector sum[1] = {};
    for (int64_t c = 0; c < p.width; c += W)
      sum[0] += *reinterpret_cast<const vector *>(g + c) * *reinterpret_cast<const vector *>(y + c);
    alignas(line) T total[4] = {};
    add_lanes<T, 1>(sum, total);
    d.scale_out[place] = scale > T(0) ? total[0] / scale : T(0);
  }
}

// The orders first .. first + A - 1 of the entries whose inputs lie in [begin, end).
template <class T, int A, bool IN>
TARGET void gradient_orders(const Problem<T> &p, const Gradient<T> &d, int64_t begin, int64_t end, int64_t first) {
  constexpr int W = BYTES / sizeof(T);
  constexpr int V = 4 * (A + 1) <= REGISTERS ? 4 : 2 * (A + 1) <= REGISTERS ? 2 : 1;
  constexpr int F = (A + 3) / 4 * 4;  // orders in whole fours
  using vector = typename Vector<T, W>::type;
  using four = typename Vector<T, 4>::type;
  using four_doubles = typename Vector<double, 4>::type;
  const int64_t columns = p.alpha + 1, width = p.width, stride = IN ? p.alpha * width : width;
  const bool loop = p.epsilon != T(0);
  const auto fill = p.wide ? coefficients<T, int64_t, A> : coefficients<T, int32_t, A>;
  const T *const x = p.x + (IN ? (first - 1) * width : 0);
  const Caller<T> caller = {reinterpret_cast<const char *>(x), stride * int64_t(sizeof(T)),
                            std::min<int64_t>((IN ? A : 1) * width * int64_t(sizeof(T)), 1024), p.scale_in, columns};
  alignas(line) T coefficient[chunk * F] = {};
  alignas(line) int64_t position[chunk];
  alignas(line) T factor[chunk * F] = {}, dot[chunk * F];

  int64_t low, high;
  rows_reading(p, begin, end, low, high);
  for (int64_t row = low; row < high; ++row) {
    int64_t start = p.indptr[row], last = p.indptr[row + 1];
    narrow(p, begin, end, start, last);
    const int64_t stop = last + (loop && begin <= row && row < end);
    const T *const scale = p.scale_out + row * columns + first;
    const T *const g = d.grad + (row * p.alpha + first - 1) * width;
    for (int64_t from = start; from < stop; from += chunk) {
      const int64_t count = std::min<int64_t>(from + chunk, stop) - from;
      fill(p, row, from, from + count, last, first, stride, coefficient, position);
      std::fill(dot, dot + count * F, T(0));
      if constexpr (by_order<T>) {  // by entries, as column sums need them
        for (int64_t e = 0; e < count; ++e)
#pragma GCC unroll 8
          for (int a = 0; a < F; ++a) factor[e * F + a] = coefficient[a * chunk + e];
      } else {
        for (int64_t e = 0; e < count; ++e)
#pragma GCC unroll 8
          for (int a = 0; a < A; ++a) factor[e * F + a] = coefficient[e * A + a];
      }
      const auto block = [&](auto vectors, auto ahead, int64_t column) TARGET ALWAYS {
        constexpr int size = decltype(vectors)::value;
        vector own[A][size];
#pragma GCC unroll 8
        for (int a = 0; a < A; ++a)
#pragma GCC unroll 8
          for (int v = 0; v < size; ++v)
            own[a][v] = scale[a] * *reinterpret_cast<const vector *>(g + a * width + column + v * W);
        for (int64_t e = 0; e < count; ++e) {
          if constexpr (decltype(ahead)::value) {
            const int64_t next = p.index(std::min(from + e + distance, p.indptr[p.rows] - 1));
            if (begin <= next && next < end) {
              caller(next);
              __builtin_prefetch(d.scale_in + next * d.stride, 1, 2);
            }
          }
          const T *const source = x + position[e] + column;
          vector product[A] = {};
#pragma GCC unroll 8
          for (int v = 0; v < size; ++v)
#pragma GCC unroll 8
            for (int a = 0; a < A; ++a)
              product[a] += own[a][v] * *reinterpret_cast<const vector *>(source + (IN ? a * width : 0) + v * W);
          add_lanes<T, A>(product, dot + e * F);
        }
      };
      const auto blocks = [&](auto vectors, int64_t column) TARGET ALWAYS {
        if (p.scattered && column == 0)
          block(vectors, std::true_type(), column);
        else
          block(vectors, std::false_type(), column);
      };
      int64_t column = 0;
      for (; column + V * W <= width; column += V * W) blocks(std::integral_constant<int, V>(), column);
      if constexpr (V > 2)
        if (column + 2 * W <= width) blocks(std::integral_constant<int, 2>(), column), column += 2 * W;
      if constexpr (V > 1)
        for (; column < width; column += W) blocks(std::integral_constant<int, 1>(), column);
      const int64_t own = std::min(count, last - from);  // without the diagonal
      for (int64_t e = 0; e < count; ++e) {
        double *const sums = d.scale_in + (e < own ? p.index(from + e) : row) * d.stride + first - 1;
#pragma GCC unroll 2
        for (int a = 0; a < F; a += 4) {
          four *const share = reinterpret_cast<four *>(dot + e * F + a);
          *share *= *reinterpret_cast<const four *>(factor + e * F + a);
          *reinterpret_cast<four_doubles *>(sums + a) += __builtin_convertvector(*share, four_doubles);
        }
      }
      T *const target = d.weight + from;
      for (int64_t e = 0; e < own; ++e) {
        T total = 0;
#pragma GCC unroll 8
        for (int a = 0; a < F; ++a) total += T(first + a) * dot[e * F + a];
        dot[e] = total / p.weight_at(from + e);
      }
      if (first > 1)
        for (int64_t e = 0; e < own; ++e) target[e] += dot[e];
      else
        std::copy(dot, dot + own, target);
    }
  }
}

// The entries whose inputs lie in [begin, end).
template <class T> TARGET void gradient(const Problem<T> &p, const Gradient<T> &d, int64_t begin, int64_t end) {
  const auto orders = [&](auto count, int64_t first) {
    if (p.orders_in)
      gradient_orders<T, decltype(count)::value, true>(p, d, begin, end, first);
    else
      gradient_orders<T, decltype(count)::value, false>(p, d, begin, end, first);
  };
  for (int64_t first = 1; first <= p.alpha; first += group) {
    switch (std::min<int64_t>(group, p.alpha - first + 1)) {
      case 1: orders(std::integral_constant<int, 1>(), first); break;
      case 2: orders(std::integral_constant<int, 2>(), first); break;
      case 3: orders(std::integral_constant<int, 3>(), first); break;
      case 4: orders(std::integral_constant<int, 4>(), first); break;
      case 5: orders(std::integral_constant<int, 5>(), first); break;
      default: orders(std::integral_constant<int, group>(), first);
    }
  }
  // What was summed holds t_in.
  for (int64_t j = begin; j < end; ++j)
    for (int64_t a = 0; a < p.alpha; ++a) {
      const T scale = p.scale_in[j * (p.alpha + 1) + 1 + a];
      double &sum = d.scale_in[j * d.stride + a];
      sum = scale > T(0) ? sum / scale : 0.0;
    }
}
