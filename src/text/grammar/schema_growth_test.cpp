// The work of compiling a schema grows with its length, whatever it is full of (base/growth_test_tools.h), or ends at the limit that
// text/grammar/schema_work.h sets.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/growth_test_tools.h"
#include "text/grammar/token_grammar.h"

namespace lockstep {
namespace {
#ifndef __SANITIZE_THREAD__  // work that is counted on one thread: nothing for ThreadSanitizer to see, and minutes under it

using Schema = nlohmann::ordered_json;

std::shared_ptr<const TokenBytes> bytes_as_tokens() {
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
  bytes.emplace_back();  // the end
  return std::make_shared<const TokenBytes>(std::move(bytes), std::vector<std::int32_t>{256});
}

TEST(SchemaGrowth, WorkGrowsWithTheLength) {
  const auto tokens = bytes_as_tokens();
  const auto name = [](std::size_t i) { return "p" + std::to_string(i); };
  const std::pair<const char*, std::function<Schema(std::size_t)>> forms[] = {
      {"properties",
       [&](std::size_t n) {
         Schema schema{{"type", "object"}, {"additionalProperties", false}};
         for (std::size_t i = 0; i < n; ++i) schema["properties"][name(i)] = {{"type", "boolean"}}, schema["required"].push_back(name(i));
         return schema;
       }},
      {"values of an enum",
       [&](std::size_t n) {
         Schema schema;
         for (std::size_t i = 0; i < n; ++i) schema["enum"].push_back(name(i));
         return schema;
       }},
      {"alternatives",
       [&](std::size_t n) {
         Schema schema;
         for (std::size_t i = 0; i < n; ++i) schema["anyOf"].push_back({{"const", name(i)}});
         return schema;
       }},
      {"objects inside each other",
       [&](std::size_t n) {
         Schema schema{{"type", "null"}};
         for (std::size_t i = 0; i < n / 16; ++i)
           schema = {{"type", "object"}, {"properties", {{"a", schema}}}, {"required", {"a"}}, {"additionalProperties", false}};
         return schema;
       }},
      {"definitions that call the next",
       [&](std::size_t n) {
         Schema schema{{"$ref", "#/$defs/p0"}};
         for (std::size_t i = 0; i < n; ++i)
           schema["$defs"][name(i)] = {
               {"type", "object"}, {"properties", {{"a", {{"$ref", "#/$defs/" + name((i + 1) % n)}}}}}, {"additionalProperties", false}};
         return schema;
       }},
      {"a long pattern",
       [&](std::size_t n) {
         std::string pattern = "^";
         for (std::size_t i = 0; i < n; ++i) pattern += "[a-c]x";
         return Schema{{"type", "string"}, {"pattern", pattern + "$"}};
       }},
      {"tuples",
       [&](std::size_t n) {
         Schema schema{{"type", "array"}, {"items", false}};
         for (std::size_t i = 0; i < n; ++i) schema["prefixItems"].push_back({{"type", "integer"}});
         return schema;
       }},
      {"a long constant",
       [](std::size_t n) {
         return Schema{{"const", std::string(20 * n, 'c')}};
       }},
      {"words that mean nothing",
       [&](std::size_t n) {
         Schema schema{{"type", "string"}};
         for (std::size_t i = 0; i < n; ++i) schema["description"] = schema.value("description", std::string()) + "word ";
         return schema;
       }},
  };
  for (const auto& [what, make] : forms) {
    const auto compile = [&](const Schema& schema) {
      try {
        TokenGrammar::from_schema(schema, tokens);
      } catch (const Error&) {  // too much, or not supported: at once
      }
    };
    EXPECT_LT(growth(make, compile, 100), kLinearGrowth) << what;
  }
}

// Behind each of a schema's optional properties any later one may come, so there the machine grows by the square: until its limit refuses it, in a time that
// the most properties that must be there set the measure for.
TEST(SchemaGrowth, WhatGrowsByTheSquareEndsAtALimit) {
  const auto tokens = bytes_as_tokens();
  const auto schema_of = [](bool required) {
    Schema properties = Schema::object(), names = Schema::array();
    for (int i = 0; i < 1500; ++i) properties.get_ref<Schema::object_t&>().emplace_back("p" + std::to_string(i), Schema{{"type", "boolean"}});
    if (required)
      for (const auto& [name, of] : properties.items()) names.push_back(name);
    return Schema{{"type", "object"}, {"properties", properties}, {"required", names}, {"additionalProperties", false}};
  };
  const Schema must = schema_of(true), may = schema_of(false);
  const WorkMeter meter;
  const double linear = meter.of([&] { TokenGrammar::from_schema(must, tokens); });
  const double refused = meter.of([&] { EXPECT_THROW(TokenGrammar::from_schema(may, tokens), Error); }, 1);
  EXPECT_LT(refused, 40 * linear);  // 2 to 3 of it
}

#endif
}  // namespace
}  // namespace lockstep
