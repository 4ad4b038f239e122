// A plugin of clang-tidy: its checks look at the repository's declarations, and
// not at those of system headers and precompiled ones. Most declarations of a
// source are the latter, and clang-tidy 14 matches every check against all.
// clang_check.py compiles and loads it. clangd limits clang-tidy the same way.

#include <memory>
#include <string>
#include <vector>

#include "clang/AST/ASTConsumer.h"
#include "clang/AST/ASTContext.h"
#include "clang/Basic/SourceManager.h"
#include "clang/Frontend/CompilerInstance.h"
#include "clang/Frontend/FrontendPluginRegistry.h"

namespace {

class ScopeSetter : public clang::ASTConsumer {
 public:
  void HandleTranslationUnit(clang::ASTContext& context) override {
    const clang::SourceManager& sources = context.getSourceManager();
    std::vector<clang::Decl*> scope;
    for (clang::Decl* declaration :
         context.getTranslationUnitDecl()->noload_decls()) {
      const bool ours = !declaration->isImplicit() &&
                        !declaration->isFromASTFile() &&
                        !sources.isInSystemHeader(declaration->getLocation());
      if (ours) scope.push_back(declaration);
    }
    context.setTraversalScope(scope);
  }
};

class ScopeAction : public clang::PluginASTAction {
 protected:
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(
      clang::CompilerInstance& /*compiler*/,
      llvm::StringRef /*source*/) override {
    return std::make_unique<ScopeSetter>();
  }
  bool ParseArgs(const clang::CompilerInstance& /*compiler*/,
                 const std::vector<std::string>& /*arguments*/) override {
    return true;
  }
  // clang-tidy's own action matches the checks after this one.
  ActionType getActionType() override { return AddBeforeMainAction; }
};

const clang::FrontendPluginRegistry::Add<ScopeAction> registered(
    "tidy-scope", "limits the checks to the repository's declarations");

}  // namespace
