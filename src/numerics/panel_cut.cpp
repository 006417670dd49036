#include "numerics/panel_cut.h"

#include <cstring>
#include <vector>

#include "base/error.h"

namespace lockstep {

namespace {
constexpr std::int64_t kLanes = 16;

// One copy of the numbers of a panel: where its scales and its numbers begin, and how they lie.
struct NumberForm {
  std::int64_t scales = 0, numbers = 0;
  std::int64_t group = kQuantisedGroup;  // inputs of a scale
  std::int64_t scale_bytes = 2;          // of one scale
  bool scale_a_lane = true;              // else one for all outputs of a panel
  enum class Width {
    nibble,
    quad,
    lane
  } width = Width::nibble;  // where a number stands: 4 bits, 8 bits beside three other inputs, 8 bits beside 15 other outputs

  std::int64_t scale_at(std::int64_t lane, std::int64_t k) const { return scales + (scale_a_lane ? k / group * kLanes + lane : k / group) * scale_bytes; }
  std::int64_t number_at(std::int64_t lane, std::int64_t k) const {
    switch (width) {
      case Width::nibble:
        return numbers + k / 8 * 64 + lane * 4 + k % 4;
      case Width::quad:
        return numbers + k / 4 * 64 + lane * 4 + k % 4;
      case Width::lane:
        break;
    }
    return numbers + k * kLanes + lane;
  }
};

std::vector<NumberForm> forms_of(const QuantisedShape& shape) {
  return {{.numbers = shape.scale_bytes(), .width = shape.bits == 8 ? NumberForm::Width::quad : NumberForm::Width::nibble}};
}

std::vector<NumberForm> forms_of(const LowBitShape& shape) {
  using Width = NumberForm::Width;
  switch (shape.format) {
    case LowBitFormat::int4:
      return forms_of(shape.integers());
    case LowBitFormat::mxfp4:
      return {{.numbers = shape.scale_bytes(), .scale_bytes = 1}};
    case LowBitFormat::mxfp8:
      return {{.numbers = shape.scale_bytes(), .scale_bytes = 1, .width = Width::lane}};
    case LowBitFormat::fp8:
      return {{.numbers = shape.scale_bytes(), .group = kFp8Block, .scale_bytes = 4, .scale_a_lane = false, .width = Width::lane}};
    case LowBitFormat::mxfp8_both:
      return {{.numbers = shape.scale_bytes(), .scale_bytes = 1, .width = Width::lane},
              {.scales = shape.across_begin(),
               .numbers = shape.across_begin() + shape.across_scale_bytes(),
               .group = 1,
               .scale_bytes = 1,
               .scale_a_lane = false,
               .width = Width::lane}};
    case LowBitFormat::none:
      break;
  }
  fail(ErrorCode::internal, "a part of a weight that is in no format");
}

// Outputs and inputs that share a scale, in any copy of the numbers.
std::int64_t shared_outputs(const LowBitShape& shape) {
  return shape.format == LowBitFormat::fp8 ? kFp8Block : shape.format == LowBitFormat::mxfp8_both ? kQuantisedGroup : 1;
}
std::int64_t shared_outputs(const QuantisedShape&) { return 1; }

void encode_zeros(const float* zeros, const LowBitShape& shape, std::uint8_t* to) { encode_panels(zeros, shape, to, 0, 1); }
void encode_zeros(const float* zeros, const QuantisedShape& shape, std::uint8_t* to) { quantise_panels(zeros, shape, to, 0, 1); }

void copy_form(const NumberForm& of, const NumberForm& to_be, const std::uint8_t* from, std::int64_t from_lane, std::int64_t input, std::uint8_t* to,
               std::int64_t to_lane, std::int64_t inputs) {
  for (std::int64_t k = 0; k < inputs; k += of.group)
    std::memcpy(to + to_be.scale_at(to_lane, k), from + of.scale_at(from_lane, input + k), static_cast<std::size_t>(of.scale_bytes));
  for (std::int64_t k = 0; k < inputs; ++k) {
    const std::uint8_t number = from[of.number_at(from_lane, input + k)];
    std::uint8_t& place = to[to_be.number_at(to_lane, k)];
    if (of.width != NumberForm::Width::nibble) {
      place = number;
      continue;
    }
    const auto shift = [](std::int64_t at) { return at % 8 / 4 * 4; };
    const int code = number >> shift(input + k) & 15;
    place = static_cast<std::uint8_t>((place & ~(15 << shift(k))) | code << shift(k));
  }
}

template <class Shape>
void cut(const std::uint8_t* whole, const Shape& from, std::int64_t output, std::int64_t input, const Shape& part, std::uint8_t* to) {
  if (part.outputs == 0 || part.inputs == 0) return;
  const std::vector<NumberForm> of = forms_of(from), to_be = forms_of(part);
  std::int64_t group = 1;
  for (const NumberForm& form : of) group = std::max(group, form.group);
  if (input % group != 0 || output % shared_outputs(from) != 0)
    fail(ErrorCode::internal, "a part begins at output {} and input {}, inside a group of {} x {} that shares a scale", output, input, shared_outputs(from),
         group);
  const std::int64_t from_panel = from.panel_bytes(), to_panel = part.panel_bytes();
  if (output % kLanes == 0 && input == 0 && part.inputs == from.inputs && (part.outputs % kLanes == 0 || output + part.outputs == from.outputs)) {
    std::memcpy(to, whole + output / kLanes * from_panel, static_cast<std::size_t>(part.bytes()));  // whole panels
    return;
  }
  std::vector<std::uint8_t> empty(static_cast<std::size_t>(to_panel));
  Shape one = part;
  one.outputs = kLanes;
  encode_zeros(std::vector<float>(static_cast<std::size_t>(kLanes * part.inputs)).data(), one, empty.data());
  for (std::int64_t panel = 0; panel < part.panels(); ++panel) std::memcpy(to + panel * to_panel, empty.data(), empty.size());
  for (std::int64_t n = 0; n < part.outputs; ++n)
    for (std::size_t form = 0; form < of.size(); ++form)
      copy_form(of[form], to_be[form], whole + (output + n) / kLanes * from_panel, (output + n) % kLanes, input, to + n / kLanes * to_panel, n % kLanes,
                part.inputs);
}
}  // namespace

void cut_panels(const std::uint8_t* whole, const LowBitShape& from, std::int64_t output, std::int64_t input, const LowBitShape& part, std::uint8_t* to) {
  cut(whole, from, output, input, part, to);
}

void cut_panels(const std::uint8_t* whole, const QuantisedShape& from, std::int64_t output, std::int64_t input, const QuantisedShape& part, std::uint8_t* to) {
  cut(whole, from, output, input, part, to);
}

}  // namespace lockstep
