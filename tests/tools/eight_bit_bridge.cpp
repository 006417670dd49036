// Linear layers in 8 bits for tests in another language. One JSON line a layer, numbers as the bits of fp32, row by row:
//   {"format": "fp8" | "mxfp8", "rows", "inputs", "outputs", "x", "w", "dy"}
// and back what the kernels compute with (x and dy rounded, w of the forward and of the input gradient) and what they make of it (y, dx, dw, the rows one
// sequence). "leaves" (8) bounds the leaves of a sum.
//   eight_bit_bridge < requests
#include <iostream>
#include <nlohmann/json.hpp>

#include "kernels/launch.h"
#include "numerics/low_bit.h"

namespace {
using namespace lockstep;
using Numbers = std::vector<float>;

Numbers numbers_of(const nlohmann::json& bits) {
  Numbers numbers;
  for (const auto& b : bits) numbers.push_back(bits_float(b.get<std::uint32_t>()));
  return numbers;
}
nlohmann::json bits_of(const Numbers& numbers) {
  nlohmann::json bits = nlohmann::json::array();
  for (const float x : numbers) bits.push_back(float_bits(x));
  return bits;
}

Numbers rounded(Numbers rows, std::int64_t width, LowBitFormat format) {
  for (std::size_t at = 0; at < rows.size(); at += static_cast<std::size_t>(width)) round_row(rows.data() + at, width, format, rows.data() + at);
  return rows;
}

// Panels [N/16][K][16] of a matrix [N, K], and back.
std::size_t in_panels(std::int64_t n, std::int64_t k, std::int64_t inputs) { return static_cast<std::size_t>((n / 16 * inputs + k) * 16 + n % 16); }
Numbers to_panels(const Numbers& w, const LowBitShape& s) {
  Numbers image(static_cast<std::size_t>(s.panels() * s.inputs * 16), 0.0f);
  for (std::int64_t n = 0; n < s.outputs; ++n)
    for (std::int64_t k = 0; k < s.inputs; ++k) image[in_panels(n, k, s.inputs)] = w[static_cast<std::size_t>(n * s.inputs + k)];
  return image;
}
Numbers to_rows(const Numbers& image, const LowBitShape& s) {
  Numbers w;
  for (std::int64_t n = 0; n < s.outputs; ++n)
    for (std::int64_t k = 0; k < s.inputs; ++k) w.push_back(image[in_panels(n, k, s.inputs)]);
  return w;
}

nlohmann::json layer(const nlohmann::json& request) {
  const LowBitFormat format = request.at("format") == "fp8" ? LowBitFormat::fp8 : LowBitFormat::mxfp8_both;
  const std::int64_t rows = request.at("rows"), inputs = request.at("inputs"), outputs = request.at("outputs");
  const Numbers x = numbers_of(request.at("x")), dy = numbers_of(request.at("dy"));
  const LowBitShape shape{outputs, inputs, format};
  const Numbers image = to_panels(numbers_of(request.at("w")), shape);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(shape.bytes()));
  encode_panels(image.data(), shape, bytes.data(), 0, shape.panels());
  Numbers forward(image.size()), across(image.size());
  decode_panels(bytes.data(), shape, forward.data());
  if (format == LowBitFormat::mxfp8_both) decode_panels_across(bytes.data(), shape, across.data());
  else across = forward;

  Backend backend({.threads = 1});
  Device& device = backend.device();
  const auto upload = [&](const Numbers& values, std::int64_t n) {
    return device.upload(values, n, static_cast<std::int64_t>(values.size()) / n, MemoryCategory::workspace);
  };
  const Buffer x_rows = upload(x, rows), dy_rows = upload(dy, rows), encoded = device.allocate(DType::u8, 1, shape.bytes(), MemoryCategory::workspace);
  backend.stream().write(encoded.view(), bytes);
  const PackedWeight w{encoded.view(), outputs, inputs, 1, request.value("leaves", 8), static_cast<int>(format) | kLowBitRows};
  const Buffer y = device.allocate(DType::f32, rows, outputs, MemoryCategory::workspace),
               dx = device.allocate(DType::f32, rows, inputs, MemoryCategory::workspace);
  const Buffer dw = device.allocate(DType::f32, 1, static_cast<std::int64_t>(image.size()), MemoryCategory::workspace);
  const Buffer segment = device.upload(std::vector<std::int32_t>(static_cast<std::size_t>(rows), 0), rows, 1, MemoryCategory::workspace);
  backend.launch(&KernelTable::linear_forward, LinearForward{y.view(), x_rows.view(), w});
  backend.launch(&KernelTable::linear_backward_input, LinearBackwardInput{dx.view(), dy_rows.view(), w});
  LinearBackwardWeight backward;
  backward.gradient = dw.view();
  backward.dy = dy_rows.view();
  backward.x = x_rows.view();
  backward.w = w;
  backward.segment = segment.view();
  backend.launch(&KernelTable::linear_backward_weight, backward);
  const auto read = [&](const Buffer& buffer) { return backend.stream().read(buffer.view()).get(); };
  return {{"x", bits_of(rounded(x, inputs, format))},
          {"dy", bits_of(rounded(dy, outputs, format))},
          {"forward_w", bits_of(to_rows(forward, shape))},
          {"gradient_w", bits_of(to_rows(across, shape))},
          {"y", bits_of(read(y))},
          {"dx", bits_of(read(dx))},
          {"dw", bits_of(to_rows(read(dw), shape))}};
}
}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) std::cout << layer(nlohmann::json::parse(line)).dump() << std::endl;
  return 0;
}
