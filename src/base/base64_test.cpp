#include "base/base64.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

// The vectors of RFC 4648, section 10.
TEST(Base64, HasThePublishedVectors) {
  const std::pair<const char*, const char*> vectors[] = {
      {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text).bytes, bytes);
    EXPECT_EQ(from_base64(text).fault, "");
  }
  EXPECT_EQ(to_base64("\xfb\xff", Base64::standard), "+/8=");
  EXPECT_EQ(to_base64("\xfb\xff", Base64::url), "-_8");
}

TEST(Base64, SaysWhatIsWrong) {
  EXPECT_EQ(from_base64("Zg=").fault, "has 3 characters, allowed is base64, padded to a multiple of 4");
  EXPECT_EQ(from_base64("Z-==").fault, "has the byte 0x2d at 1, which base64 has not");
  EXPECT_EQ(from_base64("Zg==Zg==").fault, "has the byte 0x3d at 2, which base64 has not");
  EXPECT_EQ(from_base64("====").fault, "has the byte 0x3d at 0, which base64 has not");
  EXPECT_EQ(from_base64("Zh==").fault, "ends in bits that no byte has; allowed is base64 whose last bits are 0");
  EXPECT_EQ(from_base64("Zm9=").fault, "ends in bits that no byte has; allowed is base64 whose last bits are 0");
  EXPECT_EQ(from_base64("Z===").fault, "has the byte 0x3d at 1, which base64 has not");
  EXPECT_EQ(from_base64("Zg==", Base64::url).fault, "has the byte 0x3d at 2, which base64 has not");
  EXPECT_EQ(from_base64("Zm9vZ", Base64::url).fault, "has 5 characters, of which the last stands for no byte");
}

RC_GTEST_PROP(Base64, EveryAcceptedTextIsThatOfItsBytes, (const std::string& bytes, bool url)) {
  const Base64 form = url ? Base64::url : Base64::standard;
  RC_ASSERT(from_base64(to_base64(bytes, form), form).bytes == bytes);
  const std::string text = *rc::gen::container<std::string>(rc::gen::element('A', 'Q', 'g', '+', '/', '-', '_', '='));
  const DecodedBase64 decoded = from_base64(text, form);
  if (decoded.fault.empty()) RC_ASSERT(to_base64(decoded.bytes, form) == text);
  else RC_ASSERT(decoded.bytes.empty());
}

}  // namespace
}  // namespace lockstep
