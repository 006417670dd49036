#include "api/tinker/zstd_body.h"

#include <zstd.h>

#include <memory>
#include <new>

#include "api/errors.h"

namespace lockstep {

std::string decompressed(const std::string& body, std::size_t most) {
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  const std::unique_ptr<ZSTD_DCtx, Free> context(ZSTD_createDCtx());
  if (!context) throw std::bad_alloc();
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, 27);
  std::string out;
  std::string chunk(ZSTD_DStreamOutSize(), '\0');
  ZSTD_inBuffer in{body.data(), body.size(), 0};
  std::size_t left = 1;
  while (in.pos < in.size) {
    ZSTD_outBuffer to{chunk.data(), chunk.size(), 0};
    left = ZSTD_decompressStream(context.get(), &to, &in);
    if (ZSTD_isError(left)) throw RequestError(ErrorCode::invalid_argument, {}, fmt::format("the body is no zstd: {}", ZSTD_getErrorName(left)), 400);
    if (out.size() + to.pos > most) throw RequestError(ErrorCode::invalid_argument, {}, fmt::format("the body is more than {} bytes when decompressed", most), 413);
    out.append(chunk.data(), to.pos);
  }
  // What is left in the context comes out without more input.
  for (bool more = left != 0; more;) {
    ZSTD_outBuffer to{chunk.data(), chunk.size(), 0};
    left = ZSTD_decompressStream(context.get(), &to, &in);
    if (ZSTD_isError(left) || (to.pos == 0 && left != 0)) throw RequestError(ErrorCode::invalid_argument, {}, "the body is zstd that is cut off", 400);
    if (out.size() + to.pos > most) throw RequestError(ErrorCode::invalid_argument, {}, fmt::format("the body is more than {} bytes when decompressed", most), 413);
    out.append(chunk.data(), to.pos);
    more = left != 0;
  }
  return out;
}

}  // namespace lockstep
