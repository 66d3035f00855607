// All orders of a SobolevCSR in one pass over its rows, for CPUs. Plain C interface at the end, OpenMP inside.
//
//   acc[a] = sum over the row's entries (j, w) of (w q_i q_j)^a t_in[j,a] x[j]      a = 1 .. alpha
//   out[i,a] = t_out[i,a] acc[a]        or, where the output has no orders,        out[i] = sum_a t_out[i,a] acc[a]
//
// x[j] is one row for all orders (propagate) or one row per order (the other two). For every row
//   1. the coefficients of its entries go to a small buffer;
//   2. each block of columns is summed over the entries with all accumulators in registers. Where neighbors lie
//      far apart, the rows needed about 64 entries later are prefetched.
// A row is summed by one thread in the order of its entries, so the number of threads does not change a bit.
// Sums run over at most `chunk` entries before they join the total: hubs lose no accuracy to their length.
//
// propagate_sum may go the other way, along the rows of the transpose: x[j], all orders of it, stays in registers while its
// share is added to every out[i] that reads it. An entry then costs one row read and written, instead of alpha rows
// read. Each thread has a range of outputs and takes what falls into it from all rows, in their order.
//
// The file includes itself once for each instruction set, because a target attribute must be spelled at each
// function. `propagate` and `scatter` are what a pass defines.

#ifndef SOBGNN_PASS

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "targets.h"

#define ALWAYS __attribute__((always_inline))

namespace {

constexpr int chunk = 256;     // entries whose coefficients fit the first-level cache beside their rows
constexpr int group = 6;       // orders that are summed at once
constexpr int distance = 64;   // entries between prefetching a row and reading it: about one row ahead
constexpr int line = 64;       // bytes
constexpr int64_t large = 16 << 20;  // bytes of a result that no reader would find in the cache of its core
constexpr int64_t longest = 4096;  // entries that are added to an output one by one; more are summed in chunks

template <class T> struct Problem {
  int64_t rows, inputs, alpha, width;
  bool orders_in, orders_out;
  const int64_t *indptr;
  const void *indices;
  bool wide;  // int64 indices
  const void *weight;  // float, or double where `heavy`, which T must be then
  const T *row_scale, *column_scale;
  T epsilon;
  const T *x;
  T *out;
  const int64_t *t_indptr;  // of the transpose
  const void *t_indices;
  bool t_wide;
  const void *t_weight;
  bool heavy;
  bool scattered;  // entries lie far apart, so that their rows are prefetched
  bool past;       // out is written past the caches
  const T *own = nullptr;  // propagate_sum only, [rows, width]: also gives sums[i,a] = acc[a] . own[i], where it is set
  T *sums = nullptr;       // [rows, alpha]; widths are then whole cache lines

  int64_t index(int64_t e) const {
    return wide ? static_cast<const int64_t *>(indices)[e] : int64_t(static_cast<const int32_t *>(indices)[e]);
  }
  T weight_at(int64_t e) const {
    if constexpr (std::is_same<T, double>::value)
      if (heavy) return static_cast<const double *>(weight)[e];
    return T(static_cast<const float *>(weight)[e]);
  }
  Problem transposed() const {
    Problem p = *this;
    std::swap(p.rows, p.inputs);
    std::swap(p.indptr, p.t_indptr);
    std::swap(p.indices, p.t_indices);
    std::swap(p.wide, p.t_wide);
    std::swap(p.weight, p.t_weight);
    std::swap(p.row_scale, p.column_scale);
    return p;
  }
};

// What the weight gradient reads and writes besides; see gradient.h.
template <class T> struct Gradient {
  const T *grad;  // [rows, alpha, width]
  T *weight;      // [entries]
};

// Denormals are slow and worth nothing here: products flush to zero in a worker, and its mode comes back after.
struct FlushDenormals {
#if defined(__x86_64__)
  unsigned saved = _mm_getcsr();
  FlushDenormals() { _mm_setcsr(saved | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved); }
#elif defined(__aarch64__)
  uint64_t saved;
  FlushDenormals() {
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(saved));
    __asm__ __volatile__("msr fpcr, %0" : : "r"(saved | (1ull << 24)));
  }
  ~FlushDenormals() { __asm__ __volatile__("msr fpcr, %0" : : "r"(saved)); }
#endif
};

// What was written past the caches is seen by other threads after this.
inline void drain() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

template <class T, int N> struct Vector {
  typedef T type __attribute__((vector_size(N * sizeof(T)), aligned(sizeof(T)), may_alias));
};

// The rows [low, high) that have an entry in the columns [begin, end), as far as first and last entries tell.
template <class T> void rows_reading(const Problem<T> &p, int64_t begin, int64_t end, int64_t &low, int64_t &high) {
  const auto reads = [&](int64_t e) {
    return p.t_wide ? static_cast<const int64_t *>(p.t_indices)[e] : static_cast<const int32_t *>(p.t_indices)[e];
  };
  low = p.rows, high = 0;
  for (int64_t i = begin; i < end; ++i) {
    if (p.t_indptr[i] < p.t_indptr[i + 1]) {
      low = std::min<int64_t>(low, reads(p.t_indptr[i]));
      high = std::max<int64_t>(high, reads(p.t_indptr[i + 1] - 1) + 1);
    }
  }
  if (p.epsilon != T(0)) low = std::min(low, begin), high = std::max(high, end);
}

// The entries [start, last) of a row, narrowed to those in the columns [begin, end).
template <class T>
ALWAYS inline void narrow(const Problem<T> &p, int64_t begin, int64_t end, int64_t &start, int64_t &last) {
  const auto bisect = [&](int64_t bound) {  // the first entry at `bound` or after it
    int64_t e = start;
    for (int64_t rest = last - start; rest > 0;) {
      const int64_t half = rest / 2;
      const bool right = p.index(e + half) < bound;
      e = right ? e + half + 1 : e;
      rest = right ? rest - half - 1 : half;
    }
    return e;
  };
  if (start < last && p.index(start) < begin) start = bisect(begin);
  if (start < last && p.index(last - 1) >= end) last = bisect(end);
}

// Prefetches what coming entries read, while there is work to hide it behind.
template <class T> struct Prefetch {
  const char *x;
  int64_t jump, bytes;  // from a row of x to the next, and how much of it is prefetched
  const T *scale;
  int64_t columns;

  ALWAYS void operator()(int64_t j) const {
    const char *const start = x + j * jump;
    __builtin_prefetch(scale + j * columns, 0, 2);
    for (int64_t byte = 0; byte < bytes; byte += line) __builtin_prefetch(start + byte, 0, 2);
  }
};

}  // namespace

#define SOBGNN_PASS

#if SOBGNN_X86
#define TARGET SOBGNN_AVX512
#define BYTES 64
#define REGISTERS 24  // vectors that accumulators may take, of 32
namespace avx512 {
#include "native.cpp"
}
#undef TARGET
#undef BYTES
#undef REGISTERS

#define TARGET SOBGNN_AVX2
#define BYTES 32
#define REGISTERS 12  // of 16
namespace avx2 {
#include "native.cpp"
}
#undef TARGET
#undef BYTES
#undef REGISTERS
#endif

#define TARGET
#define BYTES 16
#define REGISTERS 12
namespace plain {
#include "native.cpp"
}

namespace {

// The first row of part `part` of `parts`, which share entries and rows evenly. A row counts as eight entries,
// about what writing its output costs.
int64_t first_row(const int64_t *indptr, int64_t rows, int part, int parts) {
  const auto cost = [&](int64_t row) { return indptr[row] - indptr[0] + 8 * row; };
  const int64_t goal = cost(rows) / parts * part + cost(rows) % parts * part / parts;
  int64_t low = 0, high = rows;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (cost(middle) < goal)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Whether entries, `bytes` each, lie all over: then the cache needs to be told ahead, which costs a fifth where it
// knows already. Looked up in a few rows: is an entry within half a megabyte of where the row before it started?
template <class T> bool scattered(const Problem<T> &p, int64_t bytes) {
  int64_t seen = 0, far = 0;
  for (int64_t sample = 0; sample < 64; ++sample) {
    const int64_t row = 1 + sample * (p.rows - 1) / 64;
    if (row >= p.rows || p.indptr[row - 1] == p.indptr[row]) continue;
    const int64_t before = p.index(p.indptr[row - 1]), stop = std::min(p.indptr[row + 1], p.indptr[row] + 64);
    for (int64_t e = p.indptr[row]; e < stop; ++e, ++seen) {
      const int64_t gap = p.index(e) - before;
      far += (gap < 0 ? -gap : gap) * bytes > (int64_t(1) << 19);
    }
  }
  return 4 * far > seen;
}

// Whether every output has few entries, which must be, for them to be added one by one.
template <class T> bool short_rows(const Problem<T> &p) {
  int64_t most = 0;
  for (int64_t row = 0; row < p.rows; ++row) most = std::max(most, p.indptr[row + 1] - p.indptr[row]);
  return most <= longest;
}

template <class T> struct Kernel {
  void (*gather)(const Problem<T> &, int64_t, int64_t);
  void (*scatter)(const Problem<T> &, int64_t, int64_t);
  void (*gradient)(const Problem<T> &, const Gradient<T> &, int64_t, int64_t);
  void (*row_dots)(const T *, const T *, T *, int64_t, int64_t, int64_t);
  int64_t lanes;  // of a vector
};

// The best kernel up to `most`: 3 AVX-512, 2 AVX2, 1 plain.
template <class T> Kernel<T> kernel(int most) {
  const int level = sobgnn::level(most);
#if SOBGNN_X86
  if (level == sobgnn::avx512_level)
    return {avx512::propagate<T>, avx512::scatter<T>, avx512::gradient<T>, avx512::row_dots<T>, 64 / sizeof(T)};
  if (level == sobgnn::avx2_level)
    return {avx2::propagate<T>, avx2::scatter<T>, avx2::gradient<T>, avx2::row_dots<T>, 32 / sizeof(T)};
#endif
  (void)level;
  return {plain::propagate<T>, plain::scatter<T>, plain::gradient<T>, plain::row_dots<T>, 16 / sizeof(T)};
}

// body(begin, end) for parts of the rows, some for each thread.
template <class T, class F> void over_rows(const Problem<T> &p, int each, int threads, const F &body) {
  const int parts = threads > 1 ? int(std::min<int64_t>(each * threads, p.rows)) : 1;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads) if (parts > 1)
#endif
  {
    FlushDenormals flush;
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 1)
#endif
    for (int part = 0; part < parts; ++part)
      body(first_row(p.indptr, p.rows, part, parts), first_row(p.indptr, p.rows, part + 1, parts));
  }
}

template <class T> void run(Problem<T> problem, int threads, int level) {
  // A row narrower than a vector is read as a whole vector, into the next row: give the last one something to read.
  std::vector<T> padded;
  if (problem.width < int64_t(line / sizeof(T))) {
    const int64_t size = problem.inputs * problem.width * (problem.orders_in ? problem.alpha : 1);
    padded.assign(size + line / sizeof(T), T(0));
    std::copy(problem.x, problem.x + size, padded.begin());
    problem.x = padded.data();
  }
  const Kernel<T> kernels = kernel<T>(level);
  // Two orders gain nothing: an output is read and written, instead of two rows read.
  const bool scatter = problem.orders_in && !problem.orders_out && problem.alpha > 2 &&
                       problem.width % kernels.lanes == 0 && !problem.sums && short_rows(problem);
  const auto rows = scatter ? kernels.scatter : kernels.gather;
  const int64_t bytes = problem.width * int64_t(sizeof(T));
  problem.scattered = scattered(problem, problem.orders_in && !scatter ? problem.alpha * bytes : bytes);
  // The results of all orders in whole vectors: memory then takes each line once, where a store into the cache would
  // have it fetched first. A product that reads them next takes as long either way.
  problem.past = problem.orders_out && problem.rows * problem.alpha * bytes >= large && bytes % line == 0 &&
                 reinterpret_cast<uintptr_t>(problem.out) % line == 0;
  // More parts than threads, taken as they come: a thread that is held up does not hold up the others. But where
  // every part of the outputs takes something from everywhere, each part is one more pass over x.
  over_rows(problem, scatter && problem.scattered ? 1 : 16, threads, [&](int64_t begin, int64_t end) {
    rows(problem, begin, end);
    drain();
  });
}

// The weight gradient; x and grad are whole cache lines wide.
template <class T> void run_gradient(Problem<T> problem, const Gradient<T> &gradient, int threads, int level) {
  const auto rows = kernel<T>(level).gradient;
  const int64_t bytes = problem.width * int64_t(sizeof(T));
  problem.scattered = scattered(problem, problem.orders_in ? problem.alpha * bytes : bytes);
  over_rows(problem, 16, threads, [&](int64_t begin, int64_t end) { rows(problem, gradient, begin, end); });
}

template <class T>
void run_dots(const T *x, const T *y, T *out, int64_t rows, int64_t width, int threads, int level) {
  const auto dots = kernel<T>(level).row_dots;
  sobgnn::for_each_block(rows, 4096, threads, [&](int64_t begin, int64_t end) { dots(x, y, out, width, begin, end); });
}

}  // namespace

#define SOBOLEV_CSR(T)                                                                                                  \
  int64_t rows, int64_t inputs, int64_t alpha, int64_t width, const int64_t *indptr, const void *indices, int wide, \
      const void *weight, const int64_t *t_indptr, const void *t_indices, int t_wide, const void *t_weight,         \
      int heavy, const T *row_scale, const T *column_scale, double epsilon, const T *x
#define PROBLEM(T, ORDERS_IN, ORDERS_OUT, ...)                                                                      \
  {rows, inputs, alpha, width, ORDERS_IN != 0, ORDERS_OUT != 0, indptr, indices, wide != 0, weight, row_scale,      \
   column_scale, T(epsilon), x, __VA_ARGS__}
#define TRANSPOSE t_indptr, t_indices, t_wide != 0, t_weight, heavy != 0, false, false

#define DEFINE(T, NAME)                                                                                             \
  SOBGNN_EXPORT void sobgnn_propagate_##NAME(int orders_in, int orders_out, SOBOLEV_CSR(T), T *out, const T *own,       \
                                             T *sums, int threads, int level) {                                     \
    run<T>(PROBLEM(T, orders_in, orders_out, out, TRANSPOSE, own, sums), threads, level);                           \
  }                                                                                                                 \
  SOBGNN_EXPORT void sobgnn_gradient_##NAME(int orders_in, SOBOLEV_CSR(T), const T *grad, T *to_weight, int threads,    \
                                            int level) {                                                            \
    run_gradient<T>(PROBLEM(T, orders_in, true, nullptr, TRANSPOSE), {grad, to_weight}, threads, level);            \
  }                                                                                                                 \
  SOBGNN_EXPORT void sobgnn_dots_##NAME(const T *x, const T *y, T *out, int64_t rows, int64_t width, int threads,   \
                                        int level) {                                                                \
    run_dots<T>(x, y, out, rows, width, threads, level);                                                            \
  }

DEFINE(float, f32)
DEFINE(double, f64)

#else  // SOBGNN_PASS: once for each instruction set, inside its namespace

namespace {

// coefficient[a] = lead base^(a + 1) t[a]
template <class T, int A> TARGET ALWAYS inline void powers(T lead, T base, const T *t, T *coefficient) {
  if constexpr (A >= 4) {
    using four = typename Vector<T, 4>::type;
    const T square = base * base;
    const four steps = {base, square, square * base, square * square};
    *reinterpret_cast<four *>(coefficient) = lead * steps * *reinterpret_cast<const four *>(t);
    if constexpr (A > 4) powers<T, A - 4>(lead * (square * square), base, t + 4, coefficient + 4);
  } else {
#pragma GCC unroll 3
    for (int a = 0; a < A; ++a) {
      lead *= base;
      coefficient[a] = lead * t[a];
    }
  }
}

// Whether coefficient[a][e] is laid out by orders, as whole vectors of entries make it, or by entries.
template <class T> constexpr bool by_order = BYTES == 64 && std::is_same<T, float>::value;

template <class T, int A> constexpr int64_t place(int64_t e, int a) { return by_order<T> ? a * chunk + e : e * A + a; }

#if BYTES == 64
TARGET inline __m512i load(__mmask16 valid, const int32_t *indices) { return _mm512_maskz_loadu_epi32(valid, indices); }
TARGET inline __m512i load(__mmask16 valid, const int64_t *indices) {
  const __m256i low = _mm512_cvtepi64_epi32(_mm512_maskz_loadu_epi64(__mmask8(valid), indices));
  const __m256i high = _mm512_cvtepi64_epi32(_mm512_maskz_loadu_epi64(__mmask8(valid >> 8), indices + 8));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
#endif

// A whole vector to an aligned place, past the caches where the processor can.
template <class V> TARGET ALWAYS inline void write_past(void *target, V value) {
#if BYTES == 64
  _mm512_stream_si512(static_cast<__m512i *>(target), reinterpret_cast<const __m512i &>(value));
#elif BYTES == 32
  _mm256_stream_si256(static_cast<__m256i *>(target), reinterpret_cast<const __m256i &>(value));
#else
  *static_cast<V *>(target) = value;
#endif
}

// Step 1 for the entries [begin, end) of a row; the entry at `last`, after the row's own, is the diagonal's.
// coefficient[a][e] = (w q_i q_j)^(first + a) t_in[j, first + a], position[e] = where x[j] starts.
template <class T, class I, int A>
TARGET __attribute__((noinline)) void coefficients(const Problem<T> &p, int64_t row, int64_t begin, int64_t end,
                                                   int64_t last, int64_t first, int64_t stride, T *coefficient,
                                                   int64_t *position) {
  const int64_t columns = p.alpha + 1;
  const T q = p.row_scale[row * columns];
  const T *const column_scale = p.column_scale;
  const I *const indices = static_cast<const I *>(p.indices) + begin;
  const int64_t count = std::min(end, last) - begin;
#if BYTES == 64
  // Sixteen entries at once, where 32 bits address what they read.
  if constexpr (by_order<T>) if (p.inputs * columns <= INT32_MAX && stride <= UINT32_MAX) {
    const float *const weight = static_cast<const float *>(p.weight) + begin;
    const __m512 factor = _mm512_set1_ps(q);
    const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    const __m512i step = _mm512_set1_epi64(stride), row_length = _mm512_set1_epi32(int32_t(columns));
    for (int64_t e = 0; e < end - begin; e += 16) {
      const int64_t rest = count - e;
      const __mmask16 own = rest >= 16 ? 0xffff : __mmask16((1u << (rest > 0 ? rest : 0)) - 1);
      __m512i j = load(own, indices + e);
      __m512 w = _mm512_maskz_loadu_ps(own, weight + e);
      __mmask16 valid = own;
      if (end > last && rest < 16) {
        const __mmask16 diagonal = __mmask16(1u << rest);
        j = _mm512_mask_mov_epi32(j, diagonal, _mm512_set1_epi32(int32_t(row)));
        w = _mm512_mask_mov_ps(w, diagonal, _mm512_set1_ps(p.epsilon));
        valid = __mmask16(own | diagonal);
      }
      const __m512i low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(j));
      const __m512i high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(j, 1));
      _mm512_store_si512(position + e, _mm512_mul_epu32(low, step));
      _mm512_store_si512(position + e + 8, _mm512_mul_epu32(high, step));
      const __m512i at = _mm512_mullo_epi32(j, row_length);
      // Two neighboring columns of the scales for the price of one: a gather costs by the element.
      const auto pair = [&](int64_t column, __m512 &even, __m512 &odd) TARGET ALWAYS {
        const __m512d none = _mm512_setzero_pd();
        const float *const from = column_scale + column;
        const __m512 head = _mm512_castpd_ps(
            _mm512_mask_i32gather_pd(none, __mmask8(valid), _mm512_castsi512_si256(at), from, 4));
        const __m512 tail = _mm512_castpd_ps(
            _mm512_mask_i32gather_pd(none, __mmask8(valid >> 8), _mm512_extracti64x4_epi64(at, 1), from, 4));
        even = _mm512_permutex2var_ps(head, evens, tail);
        odd = _mm512_permutex2var_ps(head, odds, tail);
      };
      const auto single = [&](int64_t column) TARGET ALWAYS {
        return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), valid, at, column_scale + column, 4);
      };
      __m512 t[A + 1], scale;
      if (first == 1) {
        pair(0, scale, t[0]);
      } else {
        scale = single(0);
        t[0] = single(first);
      }
#pragma GCC unroll 8
      for (int a = 1; a < A; a += 2) {
        if (a + 1 < A)
          pair(first + a, t[a], t[a + 1]);
        else
          t[a] = single(first + a);
      }
      const __m512 base = _mm512_mul_ps(w, _mm512_mul_ps(factor, scale));
      __m512 power = base;
      for (int64_t order = 1; order < first; ++order) power = _mm512_mul_ps(power, base);
#pragma GCC unroll 8
      for (int a = 0; a < A; ++a) {
        if (a > 0) power = _mm512_mul_ps(power, base);
        _mm512_store_ps(coefficient + a * chunk + e, _mm512_mul_ps(power, t[a]));
      }
    }
    return;
  }
#endif
  const auto entry = [&](int64_t e, int64_t j, T weight) TARGET ALWAYS {
    const T *const scale = column_scale + j * columns;
    const T base = weight * (q * scale[0]);
    T lead = 1, square = base;
    for (int64_t rest = first - 1; rest; rest >>= 1, square *= square)
      if (rest & 1) lead *= square;
    T made[A];
    powers<T, A>(lead, base, scale + first, made);
#pragma GCC unroll 8
    for (int a = 0; a < A; ++a) coefficient[place<T, A>(e, a)] = made[a];
    position[e] = j * stride;
  };
  for (int64_t e = 0; e < count; ++e) entry(e, static_cast<int64_t>(indices[e]), p.weight_at(begin + e));
  if (end > last) entry(last - begin, row, p.epsilon);
}

// Step 2: A orders of V vectors of W columns from x on, over `count` entries, added to `total`. `call` is told of each.
template <class T, int A, int V, int W, bool IN, class C>
TARGET ALWAYS inline void sums(const C &call, const T *x, int64_t step, int64_t count, const T *coefficient,
                               const int64_t *position, typename Vector<T, W>::type (&total)[A][V]) {
  using vector = typename Vector<T, W>::type;
  constexpr int U = A * V <= 2 ? 4 : A * V <= 4 ? 2 : 1;  // entries at once: short chains hide the latency
  vector acc[U][A][V] = {};
  const auto entry = [&](int64_t e, vector(&sum)[A][V]) TARGET ALWAYS {
    call(e);
    const T *const source = x + position[e];
    if constexpr (IN) {
#pragma GCC unroll 8
      for (int a = 0; a < A; ++a)
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v)
          sum[a][v] += coefficient[place<T, A>(e, a)] * *reinterpret_cast<const vector *>(source + a * step + v * W);
    } else {
      vector values[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) values[v] = *reinterpret_cast<const vector *>(source + v * W);
#pragma GCC unroll 8
      for (int a = 0; a < A; ++a)
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[a][v] += coefficient[place<T, A>(e, a)] * values[v];
    }
  };
  int64_t e = 0;
  for (; e + U <= count; e += U)
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) entry(e + u, acc[u]);
  for (; e < count; ++e) entry(e, acc[0]);
#pragma GCC unroll 8
  for (int a = 0; a < A; ++a)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      vector sum = acc[0][a][v];
      for (int u = 1; u < U; ++u) sum += acc[u][a][v];
      total[a][v] += sum;
    }
}

// The sums of the lanes of A vectors, written or added to as many numbers of `out`, which has room for whole fours.
template <class T, int A, class V> TARGET ALWAYS inline void sum_lanes(const V (&value)[A], T *out, bool add) {
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
      _mm_store_ps(out + a, add ? _mm_load_ps(out + a) + sums : sums);
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
    out[a] = add ? out[a] + lanes[0] : lanes[0];
  }
}

// The orders first .. first + A - 1 of the rows [begin, end). Where the output has no orders, later groups of
// orders add to what earlier ones wrote.
template <class T, int A, bool IN, bool OUT>
TARGET void orders(const Problem<T> &p, int64_t begin, int64_t end, int64_t first) {
  constexpr int W = BYTES / sizeof(T);
  constexpr int V = 8 * A <= REGISTERS ? 8 : 4 * A <= REGISTERS ? 4 : 2 * A <= REGISTERS ? 2 : 1;
  using vector = typename Vector<T, W>::type;
  const int64_t columns = p.alpha + 1, width = p.width;
  const int64_t stride = IN ? p.alpha * width : width;
  const bool loop = p.epsilon != T(0), add = !OUT && first > 1;
  const auto fill = p.wide ? coefficients<T, int64_t, A> : coefficients<T, int32_t, A>;
  const T *const x = p.x + (IN ? (first - 1) * width : 0);
  // A wide row is prefetched as far as a kilobyte, the rest is left to the hardware.
  const Prefetch<T> prefetch = {reinterpret_cast<const char *>(x), stride * int64_t(sizeof(T)),
                            std::min<int64_t>((IN ? A : 1) * width * int64_t(sizeof(T)), 1024), p.column_scale, columns};
  alignas(line) T coefficient[chunk * A];
  alignas(line) int64_t position[chunk];

  for (int64_t row = begin; row < end; ++row) {
    const int64_t start = p.indptr[row], last = p.indptr[row + 1], stop = last + loop;
    const bool once = stop - start <= chunk;
    if (once) fill(p, row, start, stop, last, first, stride, coefficient, position);
    const T *const scale = p.row_scale + row * columns + first;
    T *const out = p.out + row * (OUT ? p.alpha * width : width) + (OUT ? (first - 1) * width : 0);
    alignas(line) T dot[A + 3] = {};

    // `count` vectors of columns, of which the lanes [low, high) are written.
    const auto block = [&](auto vectors, int64_t column, int low, int high) TARGET ALWAYS {
      constexpr int count = decltype(vectors)::value;
      vector total[A][count] = {};
      for (int64_t from = start; from < stop; from += chunk) {
        const int64_t to = std::min<int64_t>(from + chunk, stop);
        if (!once) fill(p, row, from, to, last, first, stride, coefficient, position);
        const T *const source = x + column;
        if (p.scattered && column == 0) {
          const int64_t reach = p.indptr[p.rows] - 1 - from;
          const auto ahead = [&](int64_t e) TARGET ALWAYS {
            const int64_t next = from + std::min(e + distance, reach);
            prefetch(p.wide ? static_cast<const int64_t *>(p.indices)[next]
                          : static_cast<const int32_t *>(p.indices)[next]);
          };
          sums<T, A, count, W, IN>(ahead, source, width, to - from, coefficient, position, total);
        } else {
          sums<T, A, count, W, IN>([](int64_t) {}, source, width, to - from, coefficient, position, total);
        }
      }
      if constexpr (IN && !OUT)
        if (p.sums) {
          vector product[A] = {};
#pragma GCC unroll 8
          for (int a = 0; a < A; ++a)
#pragma GCC unroll 8
            for (int v = 0; v < count; ++v)
              product[a] += total[a][v] * *reinterpret_cast<const vector *>(p.own + row * width + column + v * W);
          sum_lanes<T, A>(product, dot, true);
        }
      const auto store = [&](T *target, vector value) TARGET ALWAYS {
        if (OUT && p.past) {
          write_past(target, value);
        } else if (low == 0 && high == W) {
          vector *const whole = reinterpret_cast<vector *>(target);
          *whole = add ? *whole + value : value;
        } else {
          T lanes[W];
          *reinterpret_cast<vector *>(lanes) = value;
          for (int lane = low; lane < high; ++lane) target[lane] = add ? target[lane] + lanes[lane] : lanes[lane];
        }
      };
#pragma GCC unroll 8
      for (int v = 0; v < count; ++v) {
        if constexpr (OUT) {
#pragma GCC unroll 8
          for (int a = 0; a < A; ++a) store(out + a * width + column + v * W, scale[a] * total[a][v]);
        } else {
          vector sum = scale[0] * total[0][v];
#pragma GCC unroll 8
          for (int a = 1; a < A; ++a) sum += scale[a] * total[a][v];
          store(out + column + v * W, sum);
        }
      }
    };
    int64_t column = 0;
    for (; column + V * W <= width; column += V * W) block(std::integral_constant<int, V>(), column, 0, W);
    if constexpr (V > 4)
      if (column + 4 * W <= width) block(std::integral_constant<int, 4>(), column, 0, W), column += 4 * W;
    if constexpr (V > 2)
      if (column + 2 * W <= width) block(std::integral_constant<int, 2>(), column, 0, W), column += 2 * W;
    // The rest by single vectors. Where it is no whole vector, take the last W columns again and write the new ones
    // only; or, in a row shorter than W, its first W, beyond which x was padded.
    while (column < width) {
      const int64_t from = std::min(column, std::max<int64_t>(0, width - W));
      block(std::integral_constant<int, 1>(), from, int(column - from), int(std::min<int64_t>(W, width)));
      column = from + W;
    }
    if constexpr (IN && !OUT)
      if (p.sums) std::copy(dot, dot + A, p.sums + row * p.alpha + first - 1);
  }
}

template <class T, int A> TARGET void shapes(const Problem<T> &p, int64_t begin, int64_t end, int64_t first) {
  if (!p.orders_in)
    orders<T, A, false, true>(p, begin, end, first);
  else if (p.orders_out)
    orders<T, A, true, true>(p, begin, end, first);
  else
    orders<T, A, true, false>(p, begin, end, first);
}

// run(A, first) for the orders 1 .. alpha, at most `group` of them at once: first .. first + A - 1.
template <class F> TARGET ALWAYS inline void by_group(int64_t alpha, const F &run) {
  for (int64_t first = 1; first <= alpha; first += group) {
    switch (std::min<int64_t>(group, alpha - first + 1)) {
      case 1: run(std::integral_constant<int, 1>(), first); break;
      case 2: run(std::integral_constant<int, 2>(), first); break;
      case 3: run(std::integral_constant<int, 3>(), first); break;
      case 4: run(std::integral_constant<int, 4>(), first); break;
      case 5: run(std::integral_constant<int, 5>(), first); break;
      default: run(std::integral_constant<int, group>(), first);
    }
  }
}

template <class T> TARGET void propagate(const Problem<T> &p, int64_t begin, int64_t end) {
  by_group(p.alpha, [&](auto count, int64_t first) TARGET ALWAYS {
    shapes<T, decltype(count)::value>(p, begin, end, first);
  });
}

// The orders first .. first + A - 1 of all rows of x, added to the outputs [begin, end). p is the transpose: its rows
// are those of x, its columns the outputs.
template <class T, int A>
TARGET void scatter_orders(const Problem<T> &p, int64_t begin, int64_t end, int64_t first) {
  constexpr int W = BYTES / sizeof(T), all = REGISTERS + REGISTERS / 3;
  constexpr int V = 4 * (A + 1) < all ? 4 : 2 * (A + 1) < all ? 2 : 1;
  using vector = typename Vector<T, W>::type;
  const int64_t columns = p.alpha + 1, width = p.width;
  const auto fill = p.wide ? coefficients<T, int64_t, A> : coefficients<T, int32_t, A>;
  const Prefetch<T> prefetch = {reinterpret_cast<const char *>(p.out), width * int64_t(sizeof(T)),
                            std::min<int64_t>(width * int64_t(sizeof(T)), 1024), p.column_scale, columns};
  alignas(line) T coefficient[chunk * A];
  alignas(line) int64_t position[chunk];

  int64_t low, high;
  rows_reading(p, begin, end, low, high);
  for (int64_t row = low; row < high; ++row) {
    int64_t start = p.indptr[row], last = p.indptr[row + 1];
    narrow(p, begin, end, start, last);
    const int64_t stop = last + (p.epsilon != T(0) && begin <= row && row < end);
    const T *const scale = p.row_scale + row * columns + first;
    const T *const x = p.x + (row * p.alpha + first - 1) * width;
    for (int64_t from = start; from < stop; from += chunk) {
      const int64_t to = std::min<int64_t>(from + chunk, stop);
      fill(p, row, from, to, last, first, width, coefficient, position);
      const auto block = [&](auto vectors, auto ahead, int64_t column) TARGET ALWAYS {
        constexpr int count = decltype(vectors)::value;
        vector own[A][count];
#pragma GCC unroll 8
        for (int a = 0; a < A; ++a)
#pragma GCC unroll 8
          for (int v = 0; v < count; ++v)
            own[a][v] = scale[a] * *reinterpret_cast<const vector *>(x + a * width + column + v * W);
        for (int64_t e = 0; e < to - from; ++e) {
          if constexpr (decltype(ahead)::value) {
            const int64_t next = p.index(std::min(from + e + distance, p.indptr[p.rows] - 1));
            if (begin <= next && next < end) prefetch(next);
          }
          vector *const target = reinterpret_cast<vector *>(p.out + position[e] + column);
          vector sum[count];
#pragma GCC unroll 8
          for (int v = 0; v < count; ++v) sum[v] = coefficient[place<T, A>(e, 0)] * own[0][v];
#pragma GCC unroll 8
          for (int a = 1; a < A; ++a)
#pragma GCC unroll 8
            for (int v = 0; v < count; ++v) sum[v] += coefficient[place<T, A>(e, a)] * own[a][v];
#pragma GCC unroll 8
          for (int v = 0; v < count; ++v) target[v] += sum[v];
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
        if (column < width) blocks(std::integral_constant<int, 1>(), column);
    }
  }
}

// propagate_sum for the outputs [begin, end) of p, along the rows of its transpose. The width is whole vectors.
template <class T> TARGET void scatter(const Problem<T> &p, int64_t begin, int64_t end) {
  const Problem<T> transposed = p.transposed();
  std::fill(p.out + begin * p.width, p.out + end * p.width, T(0));
  by_group(p.alpha, [&](auto count, int64_t first) TARGET ALWAYS {
    scatter_orders<T, decltype(count)::value>(transposed, begin, end, first);
  });
}

#include "gradient.h"

}  // namespace

#endif
