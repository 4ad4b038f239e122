// Goal: a job's algorithms of matrix products are what its chief has measured,
// or what is kept of earlier jobs; a file or a table that is damaged, foreign
// or of a later version is told once and not used. Method: choices of emulated
// devices whose library's double has algorithms, and files made by hand.

#include "worker/job/product_choice.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "gmock/gmock.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/matrix_product_kernels.h"
#include "kernels/device/product_tuner.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline::worker {
namespace {

using testing::EmulatedDevice;
using ::testing::HasSubstr;
using ::testing::Not;

class ProductChoiceTest : public ::testing::Test {
 protected:
  ProductChoiceTest() { SetTimes(&device_); }

  // The last one is the fastest.
  static void SetTimes(EmulatedDevice* device) {
    device->products().times = {absl::Milliseconds(3), absl::Milliseconds(2),
                                absl::Milliseconds(1)};
  }
  static std::unique_ptr<MatrixProduct> Product(EmulatedDevice* device,
                                                int64_t m = 3) {
    return *device->kernels().matrix_product->make(*device,
                                                   {.m = m, .n = 4, .k = 5});
  }
  std::string File() const { return dir_.File("algorithms"); }
  ProductTuning Kept() const { return {.measures = true, .file = File()}; }
  std::string FileText() const {
    return ReadFile(File(), ProductTable::kTextBytesMax).value_or("");
  }
  // The text of the table that the chief chooses for products of these sizes.
  std::string Measure(EmulatedDevice* device, const ProductTuning& tuning,
                      int64_t m = 3) {
    ProductChoice choice(device, "j-1", tuning);
    EXPECT_OK(choice.Begin());
    const auto product = Product(device, m);
    const auto text = choice.Measure(nullptr);
    EXPECT_OK(text.status());
    return text.value_or("");
  }
  // The job's log of a call.
  template <typename Call>
  static std::string LogOf(Call call) {
    const JobLogCapture log("j-1");
    call();
    return log.text();
  }

  TempDir dir_;
  EmulatedDevice device_;
};

TEST_F(ProductChoiceTest, TheChiefMeasuresAndTheOthersFollow) {
  const std::string text = Measure(&device_, {.measures = true});
  EXPECT_EQ(device_.products().measurements, 3);
  EmulatedDevice other;
  SetTimes(&other);
  ProductChoice choice(&other, "j-1", {.measures = true});
  EXPECT_FALSE(choice.exists()) << "no library is loaded for it";
  ASSERT_OK(choice.Begin());
  EXPECT_TRUE(choice.exists());
  const auto product = Product(&other);
  EXPECT_EQ(LogOf([&] { EXPECT_OK(choice.Follow(text, false)); }), "");
  EXPECT_EQ(other.products().measurements, 0);
  EXPECT_EQ(other.product_tuner()->table().ToText(), text);
  EXPECT_THAT(text, HasSubstr("616c676f726974686d2032 "));  // "algorithm 2"
}

TEST_F(ProductChoiceTest, WhatIsKeptIsNotMeasuredAgain) {
  const std::string text = Measure(&device_, Kept());
  EXPECT_EQ(FileText(), text);
  EmulatedDevice later;
  later.products().times = {absl::Milliseconds(1), absl::Milliseconds(2),
                            absl::Milliseconds(3)};
  EXPECT_EQ(Measure(&later, Kept()), text);
  EXPECT_EQ(later.products().measurements, 0);
  // Another job's products are added.
  const std::string of_other = Measure(&later, Kept(), /*m=*/7);
  EXPECT_EQ(later.products().measurements, 3);
  EXPECT_NE(of_other, text);
  EXPECT_EQ(ProductTable::FromText(FileText())->algorithms().size(), 2u);
  EXPECT_EQ(ProductTable::FromText(of_other)->algorithms().size(), 1u)
      << "a job's table is its own";
}

TEST_F(ProductChoiceTest, AFileOfNoUseIsToldAndWrittenAnew) {
  const std::string good = Measure(&device_, Kept());
  std::string damaged = good;
  damaged[good.size() / 2] ^= 1;
  const std::string later =
      absl::StrReplaceAll(good, {{"algorithms 1\n", "algorithms 2\n"}});
  ProductTable foreign({"another GPU", "products 1.0"});
  ASSERT_TRUE(foreign.Set("key", "algorithm 0"));
  for (const std::string& text :
       {damaged, later, foreign.ToText(), good.substr(0, good.size() / 2),
        std::string("GIF89a"), std::string()}) {
    ASSERT_OK(WriteFileAtomically(File(), text));
    EmulatedDevice device;
    SetTimes(&device);
    const std::string log =
        LogOf([&] { EXPECT_EQ(Measure(&device, Kept()), good); });
    EXPECT_THAT(log, HasSubstr("kept algorithms of matrix products are not "
                               "used"));
    EXPECT_EQ(device.products().measurements, 3);
    EXPECT_EQ(FileText(), good);
  }
}

TEST_F(ProductChoiceTest, AnAlgorithmThatTheLibraryRefusesIsMeasuredAgain) {
  Measure(&device_, Kept());
  EmulatedDevice device;
  SetTimes(&device);
  device.products().refused = {2};
  device.products().times.resize(2);
  const std::string text = Measure(&device, Kept());
  EXPECT_EQ(device.products().measurements, 2);
  EXPECT_THAT(text, HasSubstr("616c676f726974686d2031 "));
  EXPECT_EQ(FileText(), text);
}

TEST_F(ProductChoiceTest, WhatTimeDidNotSufficeForIsNotKept) {
  ProductTuning hurried = Kept();
  hurried.time_max = absl::ZeroDuration();
  const std::string text = Measure(&device_, hurried);
  EXPECT_EQ(device_.products().measurements, 0);
  EXPECT_EQ(ProductTable::FromText(text)->algorithms().size(), 1u)
      << "the others follow the library's first choice";
  EXPECT_EQ(FileText(), "");
  Measure(&device_, Kept());
  EXPECT_EQ(device_.products().measurements, 3);
}

TEST_F(ProductChoiceTest, WithoutMeasuringTheFirstChoiceIsFollowed) {
  ASSERT_OK(WriteFileAtomically(File(), Measure(&device_, Kept())));
  EmulatedDevice device;
  SetTimes(&device);
  const std::string text =
      Measure(&device, {.measures = false, .file = File()});
  EXPECT_EQ(device.products().measurements, 0);
  EXPECT_THAT(text, HasSubstr("616c676f726974686d2030 "));
}

TEST_F(ProductChoiceTest, ATableThatCannotBeFollowedIsToldAndChangesNothing) {
  const std::string text = Measure(&device_, {.measures = true});
  EmulatedDevice other(1, uint64_t{1} << 40, {"emulated", "products 1.1"});
  SetTimes(&other);
  ProductChoice choice(&other, "j-1", {.measures = true});
  ASSERT_OK(choice.Begin());
  const auto product = Product(&other);
  for (const std::string& of_no_use : {text, std::string("damaged")}) {
    EXPECT_THAT(LogOf([&] { EXPECT_OK(choice.Follow(of_no_use, false)); }),
                HasSubstr("chosen by this worker's own library"));
    EXPECT_TRUE(other.product_tuner()->table().algorithms().empty());
    const std::string of_chief =
        LogOf([&] { EXPECT_OK(choice.Follow(of_no_use, true)); });
    EXPECT_THAT(of_chief, HasSubstr("they are chosen anew"));
    EXPECT_THAT(of_chief, Not(HasSubstr("the chief's")));
    EXPECT_TRUE(other.product_tuner()->table().algorithms().empty());
  }
  EmulatedDevice refusing;
  SetTimes(&refusing);
  refusing.products().refused = {2};
  ProductChoice refused(&refusing, "j-1", {.measures = true});
  ASSERT_OK(refused.Begin());
  const auto there = Product(&refusing);
  EXPECT_THAT(LogOf([&] { EXPECT_OK(refused.Follow(text, false)); }),
              HasSubstr("refuses the chief's algorithms"));
}

TEST_F(ProductChoiceTest, AFileThatCannotBeWrittenCostsNoJob) {
  ProductTuning tuning = Kept();
  tuning.file = dir_.File("no/such/folder");
  std::string text;
  EXPECT_THAT(LogOf([&] { text = Measure(&device_, tuning); }),
              HasSubstr("are not kept for other jobs"));
  EXPECT_TRUE(ProductTable::FromText(text).ok());
}

TEST_F(ProductChoiceTest, EachJobBeginsWithTheLibrarysFirstChoice) {
  ProductChoice first(&device_, "j-1", {.measures = true});
  ASSERT_OK(first.Begin());
  const auto product = Product(&device_);
  ASSERT_OK(first.Measure(nullptr).status());
  ProductChoice second(&device_, "j-2", {.measures = false});
  ASSERT_OK(second.Begin());
  EXPECT_TRUE(device_.product_tuner()->table().algorithms().empty());
}

TEST_F(ProductChoiceTest, WithoutAGpuThereIsNothingToChoose) {
  ProductChoice choice(nullptr, "j-1", Kept());
  EXPECT_FALSE(choice.exists());
  EXPECT_OK(choice.Begin());
  EXPECT_OK(choice.Follow("anything", false));
  EXPECT_EQ(*choice.Measure(nullptr), "");
}

}  // namespace
}  // namespace syncline::worker
