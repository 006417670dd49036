// Deltas that fireworks-delta-compression 0.1.0 wrote give its result; a wrong base, checksum or bit is an error, and so are any bytes.
#include "sync/arc_delta.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "sync/codec_test_tools.h"

namespace lockstep {
namespace {
struct ArcGolden {
  std::string payload, checksum, after;
};
// Of sixteen bytes 7.
const std::vector<ArcGolden>& arc_goldens() {
  static const std::vector<ArcGolden> all = {
      {std::string("\x78\x9c\x3b\xcf\x00\x05\x62\x10\x0a\x00\x0d\x9a\x00\xe6", 14), "270401852", "\xc8\7\7\7\7\7\7\7\7\x11\7\7\7\7\7\7"},
      {std::string("\x28\xb5\x2f\xfd\x20\x10\x81\x00\x00\xa6\x00\x00\x00\x00\x00\x00\x00\x00\xb2\x00\x00\x00\x00\x00\x00", 25), "304742841",
       "\xa1\7\7\7\7\7\7\7\7\xb5\7\7\7\7\7\7"}};
  return all;
}
const std::string kArcBase(16, '\7');

std::string arc_error(std::string_view payload, std::string_view base, const std::string& checksum) {
  try {
    apply_arc(payload, base, checksum);
  } catch (const Error& e) {
    EXPECT_TRUE(e.code() == ErrorCode::corrupt_file || e.code() == ErrorCode::unsupported) << e.what();
    return e.what();
  }
  return "no error";
}

TEST(ArcDeltas, ThePackagesBytesGiveItsResult) {
  for (const ArcGolden& golden : arc_goldens()) EXPECT_EQ(apply_arc(golden.payload, kArcBase, golden.checksum), golden.after);
}

TEST(ArcDeltas, WhatDoesNotMatchIsAnError) {
  for (const ArcGolden& golden : arc_goldens()) {
    EXPECT_NE(arc_error(golden.payload, std::string(16, '\6'), golden.checksum).find("Adler-32"), std::string::npos);
    EXPECT_NE(arc_error(golden.payload, kArcBase, golden.checksum + "0").find("Adler-32"), std::string::npos);
    EXPECT_NE(arc_error(golden.payload, kArcBase.substr(1), golden.checksum).find("15 bytes"), std::string::npos);
    EXPECT_NE(arc_error(golden.payload, kArcBase + "\7", golden.checksum).find("17 bytes"), std::string::npos);
    for (std::size_t bytes = 0; bytes < golden.payload.size(); ++bytes)
      EXPECT_NE(arc_error(golden.payload.substr(0, bytes), kArcBase, golden.checksum), "no error") << bytes;
  }
  const std::string pickled = arc_error(std::string("ARC3_ENVELOPE\0\x80", 15), kArcBase, "1");
  EXPECT_NE(pickled.find("arc_v3 is refused"), std::string::npos) << pickled;
}

TEST(ArcDeltas, NoBytesAreMoreThanAnError) {
  std::mt19937_64 random(11);
  for (int turn = 0; turn < 3000; ++turn) {
    const ArcGolden& golden = arc_goldens()[random() % 2];
    std::string payload = golden.payload;
    for (std::uint64_t faults = 1 + random() % 3; faults > 0; --faults) payload[random() % payload.size()] = static_cast<char>(random());
    if (random() % 4 == 0) payload = payload.substr(0, 4) + random_bytes(random, random() % 40);
    // A change that no result shows (of zlib's level, say) gives the right one.
    try {
      EXPECT_EQ(apply_arc(payload, kArcBase, golden.checksum), golden.after);
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::corrupt_file || e.code() == ErrorCode::unsupported) << e.what();
    }
  }
}
}  // namespace
}  // namespace lockstep
