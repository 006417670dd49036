// JSON of a client that stays: as its text, for a tree of values takes up to thirty times as much; copies share it. Plain value.
//   KeptJson tags(TrainingJson::array({"a"})); tags.bytes(); tags.value()
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

class KeptJson {
 public:
  KeptJson() : text_(empty()) {}  // {}
  explicit KeptJson(const nlohmann::ordered_json& value)
      : text_(std::make_shared<const std::string>(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace))) {}
  nlohmann::ordered_json value() const { return nlohmann::ordered_json::parse(*text_); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(text_->size()); }

 private:
  static const std::shared_ptr<const std::string>& empty() {
    static const auto text = std::make_shared<const std::string>("{}");
    return text;
  }
  std::shared_ptr<const std::string> text_;
};

}  // namespace lockstep
