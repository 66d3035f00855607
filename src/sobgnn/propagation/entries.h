// What `scatter` adds where weights are learned: with an entry's coefficients c[a] and own[a] = t_out[i,a] g[i,a],
//
//   share[a] = c[a] (own[a] . x[j]),   weight[e] = sum_a a share[a] / w,   column_sums[j,a] += share[a]
//
// over the entries of a chunk. Column sums are kept in float64, since they grow one entry at a time. Part of native.cpp,
// once for each instruction set.

template <class T, int A>
TARGET __attribute__((noinline)) void entry_gradients(const Problem<T> &p, int64_t row, int64_t from, int64_t count,
                                                      int64_t own_count, int64_t first, const T *coefficient,
                                                      const int64_t *position) {
  constexpr int F = (A + 3) / 4 * 4;  // orders in whole fours
  constexpr int W = BYTES / sizeof(T);
  const int64_t width = p.width;
  const T *const scale = p.scale_out + row * (p.alpha + 1) + first;
  const T *const g = p.x + (row * p.alpha + first - 1) * width;
  alignas(line) T share[(chunk + 4) * F];  // by entries: [e][F]
#if BYTES == 64
  if constexpr (std::is_same<T, float>::value) {
    // Four orders are the quarters of a vector, in which four columns of x are repeated. The quarters of four entries
    // are then summed at once.
    const int64_t lines = width / 16;
    for (int64_t part = 0; part < lines; ++part) {
#pragma GCC unroll 2
      for (int group_of_four = 0; group_of_four < F / 4; ++group_of_four) {
        __m512 own[4];
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) {
          alignas(line) float lanes[16];
#pragma GCC unroll 4
          for (int k = 0; k < 4; ++k) {
            const int a = 4 * group_of_four + k;
            const __m128 four = a < A ? _mm_loadu_ps(g + a * width + part * 16 + c * 4) * scale[a < A ? a : 0] : _mm_setzero_ps();
            _mm_store_ps(lanes + 4 * k, four);
          }
          own[c] = _mm512_load_ps(lanes);
        }
        for (int64_t e = 0; e < count; e += 4) {
          __m512 sum[4];
#pragma GCC unroll 4
          for (int u = 0; u < 4; ++u) {
            const float *const x = p.own + position[std::min(e + u, count - 1)] + part * 16;
            sum[u] = own[0] * _mm512_broadcast_f32x4(_mm_loadu_ps(x));
#pragma GCC unroll 4
            for (int c = 1; c < 4; ++c) sum[u] += own[c] * _mm512_broadcast_f32x4(_mm_loadu_ps(x + 4 * c));
          }
          const __m512d low = _mm512_castps_pd(_mm512_unpacklo_ps(sum[0], sum[1]) + _mm512_unpackhi_ps(sum[0], sum[1]));
          const __m512d high = _mm512_castps_pd(_mm512_unpacklo_ps(sum[2], sum[3]) + _mm512_unpackhi_ps(sum[2], sum[3]));
          // [order][entry] in quarters; as [entry][order] they are what column sums need.
          const __m512 all = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high)) + _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
          const __m512i turn = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
          const __m512 turned = _mm512_permutexvar_ps(turn, all);
          float *const target = share + e * F + 4 * group_of_four;
          if constexpr (F == 4) {
            _mm512_store_ps(target, part ? _mm512_load_ps(target) + turned : turned);
          } else {
            alignas(line) float lanes[16];
            _mm512_store_ps(lanes, turned);
#pragma GCC unroll 4
            for (int u = 0; u < 4; ++u) {
              const __m128 value = _mm_load_ps(lanes + 4 * u);
              _mm_store_ps(target + u * F, part ? _mm_load_ps(target + u * F) + value : value);
            }
          }
        }
      }
    }
  } else
#endif
  {
    using vector = typename Vector<T, W>::type;
    for (int64_t e = 0; e < count; ++e) {
      vector product[A] = {};
      for (int64_t c = 0; c < width; c += W)
#pragma GCC unroll 8
        for (int a = 0; a < A; ++a)
          product[a] += *reinterpret_cast<const vector *>(g + a * width + c) *
                        *reinterpret_cast<const vector *>(p.own + position[e] + c);
      std::fill(share + e * F, share + (e + 1) * F, T(0));
      sum_lanes<T, A>(product, share + e * F, false);
#pragma GCC unroll 8
      for (int a = 0; a < F; ++a) share[e * F + a] = a < A ? share[e * F + a] * scale[a < A ? a : 0] : T(0);
    }
  }
  using four = typename Vector<T, 4>::type;
  using four_doubles = typename Vector<double, 4>::type;
  for (int64_t e = 0; e < count; ++e) {
    double *const sums = p.column_sums + (e < own_count ? p.index(from + e) : row) * p.stride + first - 1;
#pragma GCC unroll 2
    for (int a = 0; a < F; a += 4) {
      four c = {};
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k)
        if (a + k < A) c[k] = coefficient[place<T, A>(e, a + k)];
      four *const value = reinterpret_cast<four *>(share + e * F + a);
      *value *= c;
      *reinterpret_cast<four_doubles *>(sums + a) += __builtin_convertvector(*value, four_doubles);
    }
  }
  T value[chunk];
  const int64_t entries = std::min(count, own_count);  // without the diagonal
  for (int64_t e = 0; e < entries; ++e) {
    T total = 0;
#pragma GCC unroll 8
    for (int a = 0; a < F; ++a) total += T(first + a) * share[e * F + a];
    value[e] = total;
  }
  for (int64_t e = 0; e < entries; ++e) value[e] /= p.weight_at(from + e);
  T *const target = p.to_weight + from;
  if (first > 1)
    for (int64_t e = 0; e < entries; ++e) target[e] += value[e];
  else
    std::copy(value, value + entries, target);
}
