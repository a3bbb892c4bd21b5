// What every machine of the target has: vectors of 4, SSE2 on x86-64 and NEON on 64-bit Arm.
#include "kernels/vector_table.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace dovetail {
namespace {

struct Vectors4 : lanes::Lanes<4> {
#if defined(__aarch64__)
  static constexpr int64_t kSums = 16;
  using lanes::Lanes<4>::Load;

  DT_LANES Floats Load(const int8_t* p) {
    int32_t bytes;
    std::memcpy(&bytes, p, sizeof(bytes));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(bytes))))));
  }
  DT_LANES Floats Max(const Floats& a, const Floats& b) { return vmaxnmq_f32(a, b); }
  DT_LANES float MaxLane(const Floats& v) { return vmaxvq_f32(v); }
  DT_LANES Floats Round(const Floats& v) { return vrndnq_f32(v); }
#elif defined(__SSE2__)
  using lanes::Lanes<4>::Load;

  DT_LANES Floats Load(const int8_t* p) {
    int32_t bytes;
    std::memcpy(&bytes, p, sizeof(bytes));
    const __m128i words = _mm_unpacklo_epi8(_mm_setzero_si128(), _mm_cvtsi32_si128(bytes));
    return _mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(_mm_setzero_si128(), words), 24));
  }
  DT_LANES Floats Max(const Floats& a, const Floats& b) { return _mm_max_ps(a, b); }
#endif
};

}  // namespace

extern const VectorKernels kVectorsPortable;
constinit const VectorKernels kVectorsPortable = lanes::Table<Vectors4>("portable");

}  // namespace dovetail
