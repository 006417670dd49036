#include "base/bounded_json.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>

#include "base/client_work.h"
#include "base/error.h"

namespace lockstep {

using Json = nlohmann::ordered_json;

namespace {
constexpr std::size_t kFewKeys = 16;  // are looked up one by one

// Iterates over a source's characters for nlohmann's lexer. The lexer buffers everything since its last token (blanks and unfinished strings too), so
// pieces in which no token ends count as memory: the consumer of tokens sets `pieces` to 0.
class CharacterOf {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CharacterOf() = default;  // the end
  CharacterOf(ByteSource& source, int& pieces) : source_(&source), pieces_(&pieces) { refill(); }
  reference operator*() const { return *at_; }
  CharacterOf& operator++() {
    if (++at_ == end_) refill();
    return *this;
  }
  bool operator!=(const CharacterOf& other) const { return at_ != other.at_; }
  bool operator==(const CharacterOf& other) const { return at_ == other.at_; }

 private:
  void refill() {
    ClientWork::check();
    const std::string_view piece = source_->next();
    if (++*pieces_ > 2) ClientWork::take(2 * piece.size());  // the lexer's vector doubles
    at_ = piece.empty() ? nullptr : piece.data();
    end_ = at_ + piece.size();
  }
  ByteSource* source_ = nullptr;
  int* pieces_ = nullptr;
  const char *at_ = nullptr, *end_ = nullptr;
};

// Builds a value from the parser's events. Members are collected in plain vectors until their object ends, since ordered_json copies all
// members, with their contents, whenever it grows.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit TreeBuilder(const JsonLimits& limits) : limits_(limits) {}
  Json root;
  std::size_t fault_byte = 0;  // where the text stops being JSON
  const char* fault_what = "";
  int pieces = 0;  // read since the last value or key

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return packs() ? pack(value) : add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!packs()) return add(Json(value));
    return value <= static_cast<number_unsigned_t>(INT64_MAX) ? pack(static_cast<std::int64_t>(value)) : pack_real(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return packs() ? pack_real(value) : add(Json(value)); }
  bool string(string_t& value) override {
    count(kStringBytes + value.size());
    return add(Json(std::move(value)));
  }
  bool binary(binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool key(string_t& name) override {
    Open& object = open_.back();
    if ((comparisons_ += object.keys++) > limits_.key_comparisons)
      fail(ErrorCode::invalid_argument, "has too many keys, allowed are {:.0f} in one object", std::sqrt(2.0 * static_cast<double>(limits_.key_comparisons)));
    count(kMemberBytes + name.size());
    object.place = place_of(object, name);
    return true;
  }
  bool end_object() override {
    Json object(Json::value_t::object);
    auto& members = object.get_ref<Json::object_t&>();
    members.reserve(open_.back().members.size());
    for (auto& [name, value] : open_.back().members) members.emplace_back(std::move(name), std::move(value));
    open_.pop_back();
    return add(std::move(object));
  }
  bool end_array() override {
    Open& array = open_.back();
    Json value = array.numbers.size() > 0 ? value_of(array.numbers) : Json(Json::value_t::array);
    if (array.numbers.size() == 0) value.get_ref<Json::array_t&>().swap(array.items);
    open_.pop_back();
    return add(std::move(value));
  }
  bool parse_error(std::size_t position, const std::string& read, const nlohmann::detail::exception& error) override {
    if (dynamic_cast<const Json::out_of_range*>(&error)) fail(ErrorCode::invalid_argument, "has a number that no double holds{}", at_field());
    fault_byte = position;
    // Python's json writes these words, as many a client's does.
    if (!read.empty() && (read.back() == 'N' || read.back() == 'I')) fault_what = "; JSON has no NaN and no Infinity";
    return false;
  }
  // Whose value is being read: ", in adam_params.learning_rate"; empty: that of the whole.
  std::string at_field() const {
    std::string path;
    for (const Open& one : open_) {
      if (path.size() > kLongestPath) return ", in " + path + "...";
      if (!one.is_object) path += fmt::format("[{}]", one.items.size() + one.numbers.size());
      else if (one.keys > 0) path += (path.empty() ? "" : ".") + plain_key(one.members[one.place].first);
    }
    return path.empty() ? path : ", in " + path;
  }

 private:
  // Approximate memory of a value, with spare capacity of vectors and their copy while they grow.
  static constexpr std::size_t kValueBytes = 24, kStringBytes = 48, kMemberBytes = 64, kContainerBytes = 56, kNumberBytes = 16;
  static constexpr std::size_t kCountedAtOnce = 64 << 10;
  static constexpr std::size_t kLongestPath = 120, kLongestKey = 40;  // in errors

  struct Open {  // an object or array that is still open
    bool is_object = false;
    std::vector<Json> items;
    JsonNumbers numbers;
    std::vector<std::pair<std::string, Json>> members;
    std::unique_ptr<std::map<std::string, std::size_t>> places;  // index by key, made when an object has more than kFewKeys members
    std::int64_t keys = 0;
    std::size_t place = 0;  // of the member whose value comes next
  };

  // A key as it may stand in a line of a log.
  static std::string plain_key(const std::string& key) {
    std::string plain = key.substr(0, kLongestKey);
    for (char& c : plain)
      if (c <= ' ' || c > '~') c = '?';
    return key.size() > kLongestKey ? plain + "..." : plain;
  }

  bool open(bool is_object) {
    unpack();
    if (open_.size() == limits_.depth) fail(ErrorCode::invalid_argument, "nests deeper than {} levels", limits_.depth);
    count(kContainerBytes);
    open_.emplace_back().is_object = is_object;
    return true;
  }
  bool add(Json&& value) {
    count(kValueBytes);
    if (open_.empty()) {
      root = std::move(value);
    } else if (Open& parent = open_.back(); parent.is_object) {
      parent.members[parent.place].second = std::move(value);
    } else {
      unpack();
      parent.items.push_back(std::move(value));
    }
    return true;
  }
  static std::size_t place_of(Open& object, std::string& name) {
    auto& members = object.members;
    if (members.size() < kFewKeys) {
      for (std::size_t i = 0; i < members.size(); ++i)
        if (members[i].first == name) return i;
    } else {
      if (!object.places) {
        object.places = std::make_unique<std::map<std::string, std::size_t>>();
        for (std::size_t i = 0; i < members.size(); ++i) object.places->emplace(members[i].first, i);
      }
      const auto [found, fresh] = object.places->emplace(name, members.size());
      if (!fresh) return found->second;
    }
    members.emplace_back(std::move(name), Json());
    return members.size() - 1;
  }

  bool packs() const { return limits_.compact_numbers && !open_.empty() && !open_.back().is_object && open_.back().items.empty(); }
  bool pack(std::int64_t value) {
    count(kNumberBytes);
    JsonNumbers& numbers = open_.back().numbers;
    if (numbers.is_whole()) numbers.whole.push_back(value);
    else numbers.real.push_back(static_cast<float>(static_cast<double>(value)));
    return true;
  }
  bool pack_real(double value) {
    count(kNumberBytes);
    JsonNumbers& numbers = open_.back().numbers;
    if (numbers.is_whole()) {
      numbers.first_real = numbers.whole.size();
      numbers.real.reserve(2 * numbers.whole.size());
      for (const std::int64_t one : numbers.whole) numbers.real.push_back(static_cast<float>(static_cast<double>(one)));
      std::vector<std::int64_t>().swap(numbers.whole);
    }
    numbers.real.push_back(static_cast<float>(value));
    return true;
  }
  // A value that is no number arrived in the array.
  void unpack() {
    if (open_.empty() || open_.back().numbers.size() == 0) return;
    const JsonNumbers numbers = std::exchange(open_.back().numbers, {});
    for (const std::int64_t value : numbers.whole) add(Json(value));
    constexpr float kBeyond = 9.2e18f;
    for (std::size_t i = 0; i < numbers.real.size(); ++i) {
      const float value = numbers.real[i];
      if (i >= numbers.first_real) add(Json(value));
      else add(Json(std::abs(value) < kBeyond ? static_cast<std::int64_t>(value) : value > 0 ? INT64_MAX : INT64_MIN));  // whole, and rounded
    }
  }
  static Json value_of(const JsonNumbers& numbers) {
    const void* data = numbers.is_whole() ? static_cast<const void*>(numbers.whole.data()) : numbers.real.data();
    std::vector<std::uint8_t> bytes(numbers.is_whole() ? numbers.whole.size() * sizeof(std::int64_t) : numbers.real.size() * sizeof(float));
    std::memcpy(bytes.data(), data, bytes.size());
    return Json::binary(std::move(bytes), numbers.is_whole() ? 0 : 1 + numbers.first_real);
  }

  void count(std::size_t bytes) {
    pieces = 0;
    if ((counted_ += bytes) < kCountedAtOnce) return;
    ClientWork::check();
    ClientWork::take(std::exchange(counted_, 0));
  }

  const JsonLimits limits_;
  std::vector<Open> open_;
  std::int64_t comparisons_ = 0;
  std::size_t counted_ = 0;
};

Json built(ByteSource& source, const JsonLimits& limits, const std::string& of) {
  TreeBuilder builder(limits);
  if (!Json::sax_parse(CharacterOf(source, builder.pieces), CharacterOf(), &builder))
    fail(ErrorCode::invalid_argument, "is not JSON: fault at byte {}{}{}{}", builder.fault_byte, of, builder.at_field(), builder.fault_what);
  return std::move(builder.root);
}
}  // namespace

Json read_json(std::string_view text, const JsonLimits& limits) {
  TextSource source(text);
  return built(source, limits, fmt::format(" of {}", text.size()));
}

Json read_json(ByteSource& source, const JsonLimits& limits) { return built(source, limits, {}); }

Json read_json_or_null(std::string_view text, const JsonLimits& limits) {
  try {
    return read_json(text, limits);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::invalid_argument) throw;
    return nullptr;
  }
}

Json read_own_json(std::string_view text) {
  const ClientWork uncounted(nullptr, nullptr);
  return read_json(text, {.depth = SIZE_MAX, .key_comparisons = INT64_MAX});
}

std::optional<JsonNumbers> json_numbers(const Json& value) {
  JsonNumbers numbers;
  if (value.is_array() && value.empty()) return numbers;
  if (!value.is_binary()) return std::nullopt;
  const Json::binary_t& bytes = value.get_binary();
  if (bytes.subtype() == 0) {
    numbers.whole.resize(bytes.size() / sizeof(std::int64_t));
    std::memcpy(numbers.whole.data(), bytes.data(), bytes.size());
  } else {
    numbers.first_real = bytes.subtype() - 1;
    numbers.real.resize(bytes.size() / sizeof(float));
    std::memcpy(numbers.real.data(), bytes.data(), bytes.size());
  }
  return numbers;
}

}  // namespace lockstep
