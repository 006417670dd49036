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
  explicit ClientJson(const nlohmann::ordered_json& value);
  nlohmann::ordered_json value() const;
  std::int64_t bytes() const { return static_cast<std::int64_t>(text_->size()); }
  // Whether it is an object with each member of `wanted`, an object too.
  bool has_members_of(const nlohmann::ordered_json& wanted) const;

 private:
  static const std::shared_ptr<const std::string>& empty();
  std::shared_ptr<const std::string> text_;
};

}  // namespace lockstep
