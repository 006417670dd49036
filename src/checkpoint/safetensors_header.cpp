#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"

namespace lockstep {

namespace {

struct TypeRow {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array<TypeRow, 17> kTypes = {{{"BOOL", 1},
                                             {"U8", 1},
                                             {"I8", 1},
                                             {"F8_E5M2", 1},
                                             {"F8_E4M3", 1},
                                             {"F8_E8M0", 1},
                                             {"I16", 2},
                                             {"U16", 2},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"I32", 4},
                                             {"U32", 4},
                                             {"F32", 4},
                                             {"C64", 8},
                                             {"F64", 8},
                                             {"I64", 8},
                                             {"U64", 8}}};
constexpr std::size_t kMostDimensions = 32;

// A state machine over the JSON parser's events. Anything unexpected is an Error.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderEvents(const std::string& label) : label_(label) {}
  SafetensorsHeader header;

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) override { unexpected(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { unexpected(text.substr(0, 40)); }
  bool binary(binary_t&) override { unexpected("binary"); }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::shape) {
      if (value > static_cast<std::uint64_t>(INT64_MAX)) corrupt("has size {} in its shape, allowed are 0 to {}", value, INT64_MAX);
      if (current_.shape.size() == kMostDimensions) corrupt("has more than {} dimensions", kMostDimensions);
      current_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (place_ == Place::offsets) {
      if (offsets_ == 2) corrupt("has more than 2 'data_offsets'");
      (offsets_++ == 0 ? current_.begin : current_.end) = value;
    } else {
      unexpected(std::to_string(value));
    }
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata_value) {
      if (!header.metadata.emplace(field_, value).second)
        fail(ErrorCode::corrupt_file, "'{}': the header's __metadata__ has {} twice", label_, quoted_name(field_));
      place_ = Place::metadata;
    } else if (place_ == Place::field_value && field_ == "dtype") {
      read_type(value);
      place_ = Place::tensor;
    } else {
      unexpected(quoted_name(value));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::start) {
      place_ = Place::top;
    } else if (place_ == Place::top_value) {
      place_ = current_.name == "__metadata__" ? Place::metadata : Place::tensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(std::string& value) override {
    if (place_ == Place::top) {
      if (!names_.insert(value).second) fail(ErrorCode::corrupt_file, "'{}': the header has {} twice", label_, quoted_name(value));
      current_ = {};
      current_.name = value;
      has_type_ = has_shape_ = has_offsets_ = false;
      place_ = Place::top_value;
    } else if (place_ == Place::metadata) {
      field_ = value;
      place_ = Place::metadata_value;
    } else {  // a tensor's field
      field_ = value;
      bool* seen = value == "dtype" ? &has_type_ : value == "shape" ? &has_shape_ : value == "data_offsets" ? &has_offsets_ : nullptr;
      if (!seen) corrupt("has the field {}, allowed are dtype, shape, data_offsets", quoted_name(value));
      if (*seen) corrupt("has the field '{}' twice", value);
      *seen = true;
      place_ = Place::field_value;
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      finish_tensor();
      place_ = Place::top;
    } else {
      place_ = place_ == Place::metadata ? Place::top : Place::end;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::field_value || field_ == "dtype") unexpected("a list");
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_ != 2) corrupt("has {} 'data_offsets', allowed are 2", offsets_);
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail(ErrorCode::corrupt_file, "'{}': the header is not valid JSON at byte {}", label_, position);
  }

 private:
  enum class Place { start, top, top_value, metadata, metadata_value, tensor, field_value, shape, offsets, end };

  template <class... A>
  [[noreturn]] void corrupt(fmt::format_string<A...> format, A&&... args) const {
    fail(ErrorCode::corrupt_file, "'{}': tensor {} {}", label_, quoted_name(current_.name), fmt::format(format, std::forward<A>(args)...));
  }

  [[noreturn]] void unexpected(const std::string& value) const {
    switch (place_) {
      case Place::start:
        fail(ErrorCode::corrupt_file, "'{}': the header is {}, allowed is an object", label_, value);
      case Place::top_value:
        fail(ErrorCode::corrupt_file, "'{}': the header's {} is {}, allowed is an object", label_, quoted_name(current_.name), value);
      case Place::metadata_value:
        fail(ErrorCode::corrupt_file, "'{}': {} in the header's __metadata__ is {}, allowed is a string", label_, quoted_name(field_), value);
      case Place::shape:
        corrupt("has {} in its shape, allowed are whole numbers from 0", value);
      case Place::offsets:
        corrupt("has {} in its 'data_offsets', allowed are whole numbers from 0", value);
      default:
        corrupt("has the {} {}, allowed is {}", field_, value, field_ == "dtype" ? "a type's name" : "a list of whole numbers");
    }
  }

  void read_type(const std::string& name) {
    for (std::size_t i = 0; i < kTypes.size(); ++i)
      if (kTypes[i].name == name) {
        current_.type = static_cast<SafetensorsType>(i);
        return;
      }
    std::vector<std::string> known;
    for (const TypeRow& row : kTypes) known.emplace_back(row.name);
    if (name == "F4" || name.starts_with("F6_"))
      fail(ErrorCode::unsupported, "'{}': tensor {} has the dtype {}, which is not offered; known are {}", label_, quoted_name(current_.name),
           quoted_name(name), fmt::join(known, ", "));
    corrupt("has the dtype {}, known are {}{}", quoted_name(name), fmt::join(known, ", "), did_you_mean(name.substr(0, 20), known));
  }

  void finish_tensor() {
    if (!has_type_) corrupt("has no dtype");
    if (!has_shape_) corrupt("has no shape");
    if (!has_offsets_) corrupt("has no data_offsets");
    if (current_.begin > current_.end) corrupt("has the data_offsets [{}, {}], which run backwards", current_.begin, current_.end);
    // A dimension of 0 makes the tensor empty whatever the others are; then nothing can overflow.
    std::uint64_t bytes = static_cast<std::uint64_t>(safetensors_type_bytes(current_.type));
    if (std::find(current_.shape.begin(), current_.shape.end(), 0) != current_.shape.end()) bytes = 0;
    for (const std::int64_t size : current_.shape)
      if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes) || bytes > static_cast<std::uint64_t>(INT64_MAX))
        corrupt("has the shape {}, whose bytes overflow 64 bits", shape_text(current_.shape));
    if (current_.end - current_.begin != bytes)
      corrupt("is {} of shape {}: {} bytes, but its data_offsets [{}, {}] hold {}", safetensors_type_name(current_.type), shape_text(current_.shape), bytes,
              current_.begin, current_.end, current_.end - current_.begin);
    header.tensors.push_back(std::move(current_));
  }

  const std::string& label_;
  Place place_ = Place::start;
  std::unordered_set<std::string> names_;
  SafetensorsTensor current_;
  std::string field_;
  int offsets_ = 0;
  bool has_type_ = false, has_shape_ = false, has_offsets_ = false;
};

}  // namespace

std::string_view safetensors_type_name(SafetensorsType type) { return kTypes[static_cast<std::size_t>(type)].name; }
std::int64_t safetensors_type_bytes(SafetensorsType type) { return kTypes[static_cast<std::size_t>(type)].bytes; }

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string quoted_name(std::string_view name) {
  std::size_t length = std::min<std::size_t>(name.size(), 120);
  while (length < name.size() && length > 100 && (static_cast<unsigned char>(name[length]) & 0xc0) == 0x80) --length;  // no torn UTF-8
  std::string text = "'";
  for (const char c : name.substr(0, length)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) text += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    else text += c;
  }
  return text + (name.size() > length ? "...'" : "'");
}

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& label) {
  if (text.empty() || text[0] != '{') fail(ErrorCode::corrupt_file, "'{}': the header does not begin with '{{'", label);
  HeaderEvents events(label);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  return std::move(events.header);
}

}  // namespace lockstep
