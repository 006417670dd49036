#include "cli/device_rates.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// What is told of the way between hosts is what is computed with.
TEST(DeviceRates, TellTheRateBetweenHosts) {
  const auto ends = [](const DeviceRates& device, const std::string& end) { EXPECT_TRUE(device.told().ends_with("; " + end)) << device.told(); };
  DeviceRates published = rates_of_device("h200");
  ends(published, "400 Gbit/s a device between hosts of 8");
  put_on_hosts(published, 2, 4, std::nullopt);
  ends(published, "400 Gbit/s a device between hosts of 4");
  put_on_hosts(published, 2, 4, 100.0);
  ends(published, "100 Gbit/s a device between hosts of 4");
  EXPECT_DOUBLE_EQ(published.network, 12.5e9);

  DeviceRates shared;
  shared.source = "this test", shared.shared = true;
  EXPECT_EQ(shared.told(), "this test") << "all ranks are on this host";
  put_on_hosts(shared, 2, 1, std::nullopt);
  ends(shared, "10 Gbit/s a host between hosts of 1");
  put_on_hosts(shared, 2, 1, 0.5);
  ends(shared, "0.5 Gbit/s a host between hosts of 1");
  EXPECT_DOUBLE_EQ(shared.network, 2 * 0.0625e9) << "of all hosts together";
}

}  // namespace
}  // namespace lockstep
