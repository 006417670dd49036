// JSON that a client attached to an object (tags, metadata). Stored as text, since a parsed tree takes up to thirty times the memory; copies share
// the text. A plain value.
//   ClientJson tags(TrainingJson::array({"a"})); tags.bytes(); tags.value()
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

class ClientJson {
 public:
  ClientJson() : text_(empty()) {}  // {}
  explicit ClientJson(const nlohmann::ordered_json& value)
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
