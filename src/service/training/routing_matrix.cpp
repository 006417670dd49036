#include "service/training/routing_matrix.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace lockstep {
namespace {
constexpr std::string_view kBase64Letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> base64_values() {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < kBase64Letters.size(); ++i) values[static_cast<unsigned char>(kBase64Letters[i])] = static_cast<std::int8_t>(i);
  return values;
}
constexpr std::array<std::int8_t, 256> kBase64Values = base64_values();

std::string base64_of(const std::vector<std::uint8_t>& bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t own = std::min<std::size_t>(bytes.size() - i, 3);
    std::uint32_t word = 0;
    for (std::size_t b = 0; b < 3; ++b) word = word << 8 | (b < own ? bytes[i + b] : 0u);
    for (std::size_t c = 0; c < 4; ++c) text += c <= own ? kBase64Letters[word >> (18 - 6 * c) & 63] : '=';
  }
  return text;
}

std::vector<std::uint8_t> bytes_of_base64(std::string_view text, const std::string& where) {
  if (text.size() % 4) fail(ErrorCode::invalid_argument, "{} has {} characters, allowed is base64, padded to a multiple of 4", where, text.size());
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::vector<std::uint8_t> bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const std::size_t letters = i + 4 == text.size() ? 4 - padding : 4;
    std::uint32_t word = 0;
    for (std::size_t c = 0; c < 4; ++c) {
      const std::int8_t value = c < letters ? kBase64Values[static_cast<unsigned char>(text[i + c])] : std::int8_t{0};
      if (value < 0) fail(ErrorCode::invalid_argument, "{} has the byte {:#04x} at {}, which base64 has not", where, static_cast<unsigned char>(text[i + c]), i + c);
      word = word << 6 | static_cast<std::uint32_t>(value);
    }
    if (word & (letters == 4 ? 0u : letters == 3 ? 0xffu : 0xffffu))
      fail(ErrorCode::invalid_argument, "{} ends in bits that no byte has; allowed is base64 whose last bits are 0", where);
    for (std::size_t b = 0; b + 1 < letters; ++b) bytes.push_back(static_cast<std::uint8_t>(word >> (16 - 8 * b)));
  }
  return bytes;
}

std::size_t id_bytes(const ExpertShape& shape) { return shape.experts > 256 ? 2 : 1; }
}  // namespace

std::string routing_matrix(const ExpertShape& shape, std::span<const std::uint16_t> experts) {
  std::vector<std::uint8_t> bytes;
  for (const std::uint16_t id : experts) {
    bytes.push_back(static_cast<std::uint8_t>(id));
    if (id_bytes(shape) == 2) bytes.push_back(static_cast<std::uint8_t>(id >> 8));
  }
  return base64_of(bytes);
}

std::vector<std::int32_t> experts_of_matrix(const ExpertShape& shape, std::string_view text, const std::string& where) {
  std::vector<std::int32_t> experts(static_cast<std::size_t>(shape.row()), kOwnExperts);
  if (text.empty()) return experts;
  if (experts.empty()) fail(ErrorCode::invalid_argument, "{} names experts, and the model has none; allowed is \"\"", where);
  const std::vector<std::uint8_t> bytes = bytes_of_base64(text, where);
  const std::size_t width = id_bytes(shape);
  if (bytes.size() != experts.size() * width)
    fail(ErrorCode::invalid_argument, "{} has {} bytes, allowed are {} ({} sparse layers, {} experts a token, {} a number)", where, bytes.size(),
         experts.size() * width, shape.layers, shape.experts_a_token, width == 1 ? "one byte" : "two bytes");
  for (std::size_t i = 0; i < experts.size(); ++i) experts[i] = width == 1 ? bytes[i] : bytes[2 * i] | bytes[2 * i + 1] << 8;
  if (const std::string fault = shape.fault(experts); !fault.empty()) fail(ErrorCode::invalid_argument, "{} {}", where, fault);
  for (auto layer = experts.begin(); layer != experts.end(); layer += shape.experts_a_token) std::sort(layer, layer + shape.experts_a_token);
  return experts;
}

}  // namespace lockstep
