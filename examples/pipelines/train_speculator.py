"""A pipeline for Kubeflow Pipelines 2 and for OpenShift AI's pipelines that trains a speculator and gives its address.

    kfp dsl compile --py train_speculator.py --output train-speculator.yaml

The step creates a SpeculatorTraining in the namespace of the run, waits for its end and hands on `status.speculator`.
Its pod needs no accelerator. docs/training.md tells which rights its ServiceAccount needs.
"""

from kfp import dsl

STEP = """\
set -eu
name=train-$1 out=$7
kubectl get spectrain "$name" > /dev/null 2>&1 || kubectl create -f - <<END
apiVersion: serving.speculative.dev/v1alpha1
kind: SpeculatorTraining
metadata: {name: "$name"}
spec:
  verifier: {model: "$2"}
  data: {prompts: "$3"}
  output: "$4"
  budget: {accelerators: $5, hours: $6}
END
kubectl wait "spectrain/$name" --for='jsonpath={.status.endedAt}' --timeout="$((2 * $6 + 12))h"
kubectl get spectrain "$name" -o 'jsonpath={.status.conditions[?(@.type=="Trained")].message}{"\\n"}'
kubectl wait "spectrain/$name" --for=condition=Trained --timeout=0
mkdir -p "$(dirname "$out")"
kubectl get spectrain "$name" -o 'jsonpath={.status.speculator}' > "$out"
"""
"""Named for the run, so that a step that is tried again waits for the training that it has begun."""


@dsl.container_component
def train_speculator(
    run: str,
    verifier: str,
    prompts: str,
    output: str,
    accelerators: int,
    hours: int,
    speculator: dsl.OutputPath(str),
):
    return dsl.ContainerSpec(
        image="quay.io/openshift/origin-cli:latest",  # any image with sh and kubectl
        command=["sh", "-c", STEP, "train"],
        args=[run, verifier, prompts, output, accelerators, hours, speculator],
    )


@dsl.pipeline(name="train-speculator")
def pipeline(
    verifier: str = "hf://Qwen/Qwen3-8B",
    prompts: str = "pvc://prompts/support.jsonl",
    output: str = "pvc://models/support",
    accelerators: int = 2,
    hours: int = 12,
) -> str:
    """Give the address of a speculator for `verifier`, trained on `prompts` and kept in `output`."""
    step = train_speculator(
        run=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
        verifier=verifier,
        prompts=prompts,
        output=output,
        accelerators=accelerators,
        hours=hours,
    )
    step.set_caching_options(enable_caching=False)  # another run trains another speculator
    return step.outputs["speculator"]
