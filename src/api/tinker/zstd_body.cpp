#include "api/tinker/zstd_body.h"

#include <zstd.h>

#include <new>
#include <utility>
#include <vector>

#include "api/errors.h"
#include "base/client_work.h"

namespace lockstep {

struct ZstdSource::Decoder {
  ZSTD_DCtx* context = ZSTD_createDCtx();
  std::size_t counted = 0;
  std::vector<std::shared_ptr<void>> held;  // the count of it, as long as it lives
  ~Decoder() { ZSTD_freeDCtx(context); }
  // Its window comes with the header of a frame, and is written, so that it takes memory, by the bytes behind that.
  void count() {
    const std::size_t bytes = ZSTD_sizeof_DCtx(context);
    if (bytes <= counted) return;
    ClientWork::take(bytes - counted);
    held.push_back(ClientWork::hold(bytes - std::exchange(counted, bytes)));
  }
};

ZstdSource::ZstdSource(std::string_view body, std::size_t most)
    : decoder_(std::make_unique<Decoder>()), body_(body), most_(most), chunk_(ZSTD_DStreamOutSize(), '\0') {
  constexpr int kWindowLog = 23;  // what a decoder must take; only --ultra and --long write more
  if (!decoder_->context) throw std::bad_alloc();
  ZSTD_DCtx_setParameter(decoder_->context, ZSTD_d_windowLogMax, kWindowLog);
}
ZstdSource::~ZstdSource() = default;

std::string_view ZstdSource::next() {
  while (position_ < body_.size() || left_ != 0) {
    ZSTD_inBuffer in{body_.data(), body_.size(), position_};
    ZSTD_outBuffer out{chunk_.data(), chunk_.size(), 0};
    left_ = ZSTD_decompressStream(decoder_->context, &out, &in);
    decoder_->count();
    if (ZSTD_isError(left_)) throw RequestError(ErrorCode::invalid_argument, {}, fmt::format("the body is no zstd: {}", ZSTD_getErrorName(left_)), 400);
    if (out.pos == 0 && left_ != 0 && in.pos == body_.size() && position_ == in.pos)
      throw RequestError(ErrorCode::invalid_argument, {}, "the body is zstd that is cut off", 400);
    position_ = in.pos;
    if ((total_ += out.pos) > most_)
      throw RequestError(ErrorCode::invalid_argument, {}, fmt::format("the body is more than {} bytes when decompressed", most_), 413);
    if (out.pos > 0) return {chunk_.data(), out.pos};
  }
  return {};
}

}  // namespace lockstep
