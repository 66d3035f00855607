// Instruction sets, chosen at run time: the best that the processor has, and at most what SOBGNN_CPU allows.
//
// SOBGNN_CPU = plain | avx2 | avx512 lets one machine run what others would. On AArch64 and elsewhere there is one
// form, "plain", whose vectors of 16 bytes are the processor's own (NEON).
//
// A kernel comes in all forms in one of two ways:
//   - as a body whose loops the compiler vectorizes:
//         struct Body { template <class T> SOBGNN_INLINE static void run(T *x, int64_t n) { ... } };
//         sobgnn::dispatch<Body>(x, n);
//   - written by vectors, once for each namespace avx512, avx2, plain, as native.cpp is: `level(most)` picks one.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#define SOBGNN_EXPORT extern "C" __attribute__((visibility("default")))
#define SOBGNN_INLINE __attribute__((always_inline)) inline

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define SOBGNN_X86 1
#define SOBGNN_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define SOBGNN_AVX2 __attribute__((target("avx2,fma")))
#else
#define SOBGNN_X86 0
#endif

namespace sobgnn {

constexpr int plain_level = 1, avx2_level = 2, avx512_level = 3;

inline int supported_level() {
#if SOBGNN_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
    return wide ? avx512_level : avx2_level;
  }
#endif
  return plain_level;
}

inline int allowed_level() {
  const char *const name = std::getenv("SOBGNN_CPU");
  if (name && !std::strcmp(name, "plain")) return plain_level;
  if (name && !std::strcmp(name, "avx2")) return avx2_level;
  return avx512_level;
}

// The level in use, at most `most`. The environment and the processor are asked once per process.
inline int level(int most = avx512_level) {
  static const int allowed = allowed_level(), supported = supported_level();
  const int best = allowed < supported ? allowed : supported;
  return most < best ? most : best;
}

#if SOBGNN_X86
template <class Body, class... A> SOBGNN_AVX512 void run_avx512(A... arguments) { Body::run(arguments...); }
template <class Body, class... A> SOBGNN_AVX2 void run_avx2(A... arguments) { Body::run(arguments...); }
#endif

// Body::run(arguments...), compiled for the instruction set in use. Arguments are passed by value; std::cref passes a
// large one by reference.
template <class Body, class... A> void dispatch(A... arguments) {
#if SOBGNN_X86
  if (level() == avx512_level) return run_avx512<Body>(arguments...);
  if (level() == avx2_level) return run_avx2<Body>(arguments...);
#endif
  Body::run(arguments...);
}

// body(part) for each of `parts`, shared among `threads` threads, or one after the other without OpenMP.
template <class F> void for_each_part(int64_t parts, int threads, const F &body) {
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(threads)
#else
  (void)threads;
#endif
  for (int64_t part = 0; part < parts; ++part) body(part);
}

// body(begin, end) for blocks of the rows, likewise.
template <class F> void for_each_block(int64_t rows, int64_t block, int threads, const F &body) {
  const int64_t blocks = (rows + block - 1) / block;
  for_each_part(blocks, blocks > 1 ? threads : 1, [&](int64_t b) {
    const int64_t end = (b + 1) * block;
    body(b * block, end < rows ? end : rows);
  });
}

}  // namespace sobgnn
