"""Models of the library transformers."""

import transformers
from torch import nn

from case import case, CLASSES, tokens
from image_cases import images
from sequence_cases import padded


class Logits(nn.Module):
    """What a model of transformers gives, without the rest."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids).logits


class MaskedLogits(nn.Module):
    """With the attention mask from the ids."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        mask = (input_ids != 0).long()
        return self.model(input_ids=input_ids, attention_mask=mask).logits


BERT = dict(vocab_size=50, hidden_size=16, num_hidden_layers=2,
            num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=32, type_vocab_size=2,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            num_labels=CLASSES, pad_token_id=0)


def bert_of(attention):
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(**BERT, attn_implementation=attention))


@case
def hf_bert():
    return tokens(Logits(bert_of("sdpa")))


@case
def hf_bert_eager():
    return tokens(Logits(bert_of("eager")))


@case
def hf_bert_masked():
    return padded(tokens(MaskedLogits(bert_of("eager"))))


class TwoInputs(nn.Module):
    """With the attention mask as an input, as a tokenizer gives it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids,
                          attention_mask=attention_mask).logits


@case
def hf_bert_two_inputs():
    this = padded(tokens(TwoInputs(bert_of("sdpa"))))
    this.inputs["attention_mask"] = (this.inputs["input_ids"] != 0).long()
    return this


@case
def hf_distilbert():
    return tokens(Logits(transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(
            vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=32,
            max_position_embeddings=32, dropout=0.0, attention_dropout=0.0,
            seq_classif_dropout=0.0, num_labels=CLASSES))))


@case
def hf_roberta():
    options = dict(BERT, type_vocab_size=1, pad_token_id=0)
    return tokens(Logits(transformers.RobertaForSequenceClassification(
        transformers.RobertaConfig(**options))))


@case
def hf_albert():
    return tokens(Logits(transformers.AlbertForSequenceClassification(
        transformers.AlbertConfig(**BERT, embedding_size=8,
                                  classifier_dropout_prob=0.0))))


@case
def hf_electra():
    return tokens(Logits(transformers.ElectraForSequenceClassification(
        transformers.ElectraConfig(**BERT, embedding_size=8))))


@case
def hf_gpt2():
    return tokens(Logits(transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=50, n_positions=32, n_embd=16, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        bos_token_id=0, eos_token_id=0))), per_token=True)


@case
def hf_gpt_neox():
    return tokens(Logits(transformers.GPTNeoXForCausalLM(
        transformers.GPTNeoXConfig(
            vocab_size=50, hidden_size=16, num_hidden_layers=2,
            num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=32, use_cache=False, bos_token_id=0,
            eos_token_id=0))), per_token=True)


@case
def hf_llama():
    return tokens(Logits(transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, intermediate_size=32,
        max_position_embeddings=32, use_cache=False, pad_token_id=0,
        bos_token_id=1, eos_token_id=2))), per_token=True)


class T5Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = transformers.T5EncoderModel(transformers.T5Config(
            vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=2,
            num_heads=2, dropout_rate=0.0))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, input_ids):
        return self.head(
            self.encoder(input_ids=input_ids).last_hidden_state.mean(1))


@case
def hf_t5_encoder():
    return tokens(T5Classifier())


class HfVit(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = transformers.ViTForImageClassification(
            transformers.ViTConfig(
                hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=32, image_size=16, patch_size=8,
                hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                num_labels=CLASSES))

    def forward(self, image):
        return self.model(pixel_values=image).logits


@case
def hf_vit():
    return images(HfVit())
