#include "host/routing_matrix.h"

#include <algorithm>

#include "base/base64.h"
#include "base/error.h"

namespace lockstep {
namespace {
std::size_t id_bytes(const ExpertShape& shape) { return shape.experts > 256 ? 2 : 1; }
}  // namespace

std::string routing_matrix(const ExpertShape& shape, std::span<const std::uint16_t> experts) {
  std::string bytes;
  for (const std::uint16_t id : experts) {
    bytes += static_cast<char>(id);
    if (id_bytes(shape) == 2) bytes += static_cast<char>(id >> 8);
  }
  return to_base64(bytes);
}

std::vector<std::int32_t> experts_of_matrix(const ExpertShape& shape, std::string_view text, const std::string& where) {
  std::vector<std::int32_t> experts(static_cast<std::size_t>(shape.row()), kOwnExperts);
  if (text.empty()) return experts;
  if (experts.empty()) fail(ErrorCode::invalid_argument, "{} names experts, and the model has none; allowed is \"\"", where);
  const DecodedBase64 decoded = from_base64(text);
  if (!decoded.fault.empty()) fail(ErrorCode::invalid_argument, "{} {}", where, decoded.fault);
  const std::string& bytes = decoded.bytes;
  const std::size_t width = id_bytes(shape);
  if (bytes.size() != experts.size() * width)
    fail(ErrorCode::invalid_argument, "{} has {} bytes, allowed are {} ({} sparse layers, {} experts a token, {} a number)", where, bytes.size(),
         experts.size() * width, shape.layers, shape.experts_a_token, width == 1 ? "one byte" : "two bytes");
  const auto byte = [&bytes](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  for (std::size_t i = 0; i < experts.size(); ++i) experts[i] = width == 1 ? byte(i) : byte(2 * i) | byte(2 * i + 1) << 8;
  if (const std::string fault = shape.fault(experts); !fault.empty()) fail(ErrorCode::invalid_argument, "{} {}", where, fault);
  for (auto layer = experts.begin(); layer != experts.end(); layer += shape.experts_a_token) std::sort(layer, layer + shape.experts_a_token);
  return experts;
}

}  // namespace lockstep
