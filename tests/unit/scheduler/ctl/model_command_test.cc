// Goal: the command writes a model and nothing else, or says what is wrong.
// Method: into strings.

#include "scheduler/ctl/model_command.h"

#include <sstream>

#include "common/model/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/printable_stream.h"

namespace syncline::ctl {
namespace {

using testing::HasSubstr;

class ModelCommandTest : public testing::Test {
 protected:
  int Run(const ModelOptions& options, bool live = false) {
    out_.str("");
    err_.str("");
    return RunModel(options, {.out = out_, .err = err_, .live = live});
  }
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(ModelCommandTest, WritesTheModel) {
  ASSERT_EQ(Run({"mlp", {"inputs=7", "hidden=3,5", "classes=2"}}), kExitOk)
      << err_.str();
  const auto model = Model::Parse(out_.str(), "mlp");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->graph().initializers.size(), 6u);
  EXPECT_EQ(err_.str(), "");
}

// synctl's own streams keep text from steering the terminal.
TEST_F(ModelCommandTest, TheModelIsWrittenAsItIsThroughAFilterOfText) {
  ASSERT_EQ(Run({"mlp", {}}), kExitOk);
  std::ostringstream behind;
  PrintableStream filtered(&behind);
  ASSERT_EQ(RunModel({"mlp", {}}, {.out = filtered, .err = err_}), kExitOk);
  EXPECT_TRUE(behind.str() == out_.str());
}

TEST_F(ModelCommandTest, ListsWhatThereIs) {
  EXPECT_EQ(Run({}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("lenet          convolutional"));
}

TEST_F(ModelCommandTest, SaysWhatIsWrong) {
  EXPECT_EQ(Run({"alexnet", {}}), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("there is no model 'alexnet'; there is "
                                    "mlp, lenet"));
  EXPECT_EQ(Run({"mlp", {"hidden"}}), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("--set: 'hidden' is not key=value"));
  EXPECT_EQ(Run({"mlp", {"seed=1", "seed=2"}}), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("--set: seed is given twice"));
  EXPECT_EQ(Run({"mlp", {"classes=0", "depth=3"}}), kExitFailed);
  EXPECT_THAT(err_.str(),
              HasSubstr("classes: '0' is not a whole number from 1 to 65536"));
  EXPECT_THAT(err_.str(),
              HasSubstr("depth: there is no such setting; there is inputs "
                        "(default 784), hidden (default 1024,1024)"));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ModelCommandTest, ATerminalIsSpared) {
  EXPECT_EQ(Run({"mlp", {}}, /*live=*/true), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("> model.onnx"));
  EXPECT_EQ(out_.str(), "");
}

}  // namespace
}  // namespace syncline::ctl
