// SPDX-License-Identifier: MIT

// render writes what "helm template" makes of the chart, for tests that apply it:
//
//	render CHART RELEASE NAMESPACE <VALUES >OBJECTS
package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "Usage: render CHART RELEASE NAMESPACE <VALUES")
		os.Exit(2)
	}
	if err := render(os.Args[1], chartutil.ReleaseOptions{Name: os.Args[2], Namespace: os.Args[3], IsInstall: true}); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func render(chart string, release chartutil.ReleaseOptions) error {
	c, err := loader.Load(chart)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	given := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &given); err != nil {
		return fmt.Errorf("values: %w", err)
	}
	values, err := chartutil.ToRenderValues(c, given, release, nil)
	if err != nil {
		return err
	}
	made, err := engine.Render(c, values)
	if err != nil {
		return err
	}
	var files []string
	for file := range made {
		if path.Ext(file) == ".yaml" {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	for _, file := range files {
		fmt.Printf("---\n%s\n", made[file])
	}
	return nil
}
