// Command kubernetes holds kube-apiserver, kube-controller-manager,
// kube-scheduler and kubectl in one file: they share nearly all of their code,
// so one link costs a third of four. The component is chosen by the name the
// program was started under (a symbolic link) or by the first argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // CronJobs name time zones; slim hosts carry no database

	"github.com/spf13/cobra"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// server adapts a component's command constructor to a function that runs it
// to its end and returns the exit code.
func server(build func() *cobra.Command) func() int {
	return func() int { return cli.Run(build()) }
}

// runKubectl prints errors the way kubectl does, without a usage text.
func runKubectl() int {
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) //nolint:errcheck // a bad level is reported by the command itself
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

func main() {
	components := map[string]func() int{
		"kube-apiserver":          server(apiserver.NewAPIServerCommand),
		"kube-controller-manager": server(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          server(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kubectl":                 runKubectl,
	}
	name := filepath.Base(os.Args[0])
	if _, known := components[name]; !known && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	run, known := components[name]
	if !known {
		fmt.Fprintln(os.Stderr, "usage: kubernetes {kube-apiserver|kube-controller-manager|kube-scheduler|kubectl} [arguments]")
		os.Exit(2)
	}
	os.Exit(run())
}
