// Types of tools' arguments from their JSON schemas, by which an argument written as bare text between tags is converted to JSON.
//   std::string json = types.value_json("get_weather", "days", "3");  // 3, or "3" where the schema says string
// Knows no format. Immutable.
#pragma once
#include <nlohmann/json.hpp>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace lockstep {

class ArgumentTypes {
 public:
  // OpenAI's list of tools; what is not one is passed over.
  explicit ArgumentTypes(const nlohmann::ordered_json& tools);

  bool knows(std::string_view tool) const { return types_.find(tool) != types_.end(); }
  // Any value is read as text.
  bool only_text(std::string_view tool, std::string_view argument) const;
  // How a bare text is read: as a text (where it is null: as null), or as another value.
  struct Reading {
    bool text = false, null = false;
    bool text_alone = false;  // the schema allows nothing else
  };
  Reading reading(std::string_view tool, std::string_view argument) const;
  // A text where the schema allows no other type or the text is no value of its type; without a schema whatever JSON it is.
  std::string value_json(std::string_view tool, std::string_view argument, std::string_view text) const;

 private:
  std::shared_ptr<void> memory_;                                                                         // of all below, where it is counted
  std::map<std::string, std::map<std::string, std::set<std::string>, std::less<>>, std::less<>> types_;  // tool, argument -> types
  const std::set<std::string>* types_of(std::string_view tool, std::string_view argument) const;         // null: any
};

}  // namespace lockstep
